//! What was measured at this size? Points, with straight lines between them.
//!
//! Below its first point a table keeps that point's value: the smallest step costs no less. Beyond its last point it
//! follows a form, scaled so that it meets the last point.

/// A table of one size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    points: Vec<(f64, f64)>,
}

/// A table of two sizes: rows of one size, each a table of the other. Rows may be of different length.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grid {
    rows: Vec<(f64, Curve)>,
}

/// A point of a grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GridPoint {
    pub row: f64,
    pub column: f64,
    pub ms: f64,
}

impl Curve {
    /// `points` increase and are not empty.
    pub(crate) fn new(points: Vec<(f64, f64)>) -> Self {
        assert!(!points.is_empty(), "a table has points");
        Self { points }
    }

    pub(crate) fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    #[inline]
    pub(crate) fn at(&self, x: f64, form: impl Fn(f64) -> f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 <= x);
        match (
            after.checked_sub(1).map(|before| self.points[before]),
            self.points.get(after),
        ) {
            (Some(before), Some(&after)) => between(before, after, x),
            (None, Some(first)) => first.1,
            (Some(last), None) => last.1 * growth(form(x), form(last.0)),
            (None, None) => 0.0,
        }
    }
}

impl Grid {
    /// `points` increase by row, then by column, and are not empty.
    pub(crate) fn new(points: &[GridPoint]) -> Self {
        let rows = points.chunk_by(|a, b| a.row.total_cmp(&b.row).is_eq());
        let row = |points: &[GridPoint]| {
            let columns = points.iter().map(|point| (point.column, point.ms)).collect();
            (points[0].row, Curve::new(columns))
        };
        let rows: Vec<_> = rows.map(row).collect();
        assert!(!rows.is_empty(), "a table has points");
        Self { rows }
    }

    /// Row, column and value of every point.
    pub(crate) fn points(&self) -> Vec<(f64, f64, f64)> {
        let points = |(row, curve): &(f64, Curve)| {
            let row = *row;
            let points = curve.points.iter().map(move |&(column, ms)| (row, column, ms));
            points.collect::<Vec<_>>()
        };
        self.rows.iter().flat_map(points).collect()
    }

    #[inline]
    pub(crate) fn at(&self, row: f64, column: f64, form: impl Fn(f64, f64) -> f64) -> f64 {
        let value = |index: usize| {
            let (row, curve) = &self.rows[index];
            curve.at(column, |column| form(*row, column))
        };
        let after = self.rows.partition_point(|(at, _)| *at <= row);
        match after.checked_sub(1) {
            None => value(0),
            Some(last) if after == self.rows.len() => {
                value(last) * growth(form(row, column), form(self.rows[last].0, column))
            }
            Some(before) => {
                let (low, high) = (self.rows[before].0, self.rows[after].0);
                between((low, value(before)), (high, value(after)), row)
            }
        }
    }
}

#[inline]
fn between(before: (f64, f64), after: (f64, f64), x: f64) -> f64 {
    before.1 + (after.1 - before.1) * (x - before.0) / (after.0 - before.0)
}

/// By how much a form grows from the edge of a table.
fn growth(there: f64, at_edge: f64) -> f64 {
    if at_edge > 0.0 { there / at_edge } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
    }

    #[test]
    fn lines_between_points_and_a_form_beyond() {
        let curve = Curve::new(vec![(1.0, 10.0), (2.0, 20.0), (4.0, 20.0)]);
        let form = |x: f64| x;
        for (x, expected) in [
            (0.0, 10.0),
            (1.0, 10.0),
            (1.5, 15.0),
            (3.0, 20.0),
            (4.0, 20.0),
            (8.0, 40.0),
        ] {
            near(curve.at(x, form), expected);
        }
    }

    #[test]
    fn a_grid_may_have_rows_of_different_length() {
        let point = |row, column, ms| GridPoint { row, column, ms };
        let grid = Grid::new(&[
            point(1.0, 10.0, 10.0),
            point(1.0, 20.0, 20.0),
            point(1.0, 40.0, 40.0),
            point(3.0, 10.0, 30.0),
            point(3.0, 20.0, 60.0),
        ]);
        let form = |row: f64, column: f64| row * column;
        for (row, column, expected) in [
            (1.0, 15.0, 15.0),
            (2.0, 10.0, 20.0),
            (2.0, 15.0, 30.0),
            // The second row ends before the first does: it goes on as the form.
            (2.0, 40.0, 80.0),
            (6.0, 40.0, 240.0),
            (0.0, 5.0, 10.0),
        ] {
            near(grid.at(row, column, form), expected);
        }
    }
}
