//! How is a metric declared? As a field: type, name, and help text as its doc comment.

/// What a metric is, for documents and for `# TYPE` lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows; begins at 0 when the process does.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How many observations fell below each of a few bounds.
    Histogram,
}

impl MetricKind {
    /// As the text format spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric, as documents speak of it.
#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    /// Its full name.
    pub name: &'static str,
    /// What it is.
    pub kind: MetricKind,
    /// What it counts.
    pub help: &'static str,
    /// Its label and the values it takes, if it has one.
    pub label: Option<Label>,
    /// Its second label, if it has two.
    pub second: Option<Label>,
}

/// A label and the values it takes; none where it names a worker or a rank.
pub type Label = (&'static str, &'static [&'static str]);

impl Declaration {
    /// Its labels.
    pub fn labels(&self) -> impl Iterator<Item = Label> {
        self.label.into_iter().chain(self.second)
    }
}

/// Declares a struct of metrics, with a list of declarations and a method that writes all of them.
macro_rules! metrics {
    (
        $(#[$meta:meta])*
        pub struct $group:ident {
            $( $(#[doc = $doc:literal])+ $field:ident: $kind:ty = $name:literal, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        pub struct $group {
            $( $(#[doc = $doc])+ pub $field: $kind, )+
        }

        impl $group {
            /// What is declared here, in the order it is written.
            pub const DECLARATIONS: &'static [$crate::declare::Declaration] = &[$( $crate::declare::Declaration {
                name: $name,
                kind: <$kind as $crate::metric::Metric>::KIND,
                help: concat!($($doc),+).trim_ascii(),
                label: <$kind as $crate::metric::Metric>::LABEL,
                second: <$kind as $crate::metric::Metric>::SECOND,
            } ),+];

            /// Appends all of them in the Prometheus text format.
            pub fn render_into(&self, out: &mut String) {
                let mut declarations = Self::DECLARATIONS.iter();
                $( $crate::metric::render_family(
                    declarations.next().expect("one declaration per field"),
                    &self.$field,
                    out,
                ); )+
            }
        }
    };
}

pub(crate) use metrics;
