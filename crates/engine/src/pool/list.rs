//! Which of these was let go first? A list through the elements of a vector, in order of release.

/// No element.
pub(crate) const NONE: u32 = u32::MAX;

/// An element's neighbours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    before: u32,
    after: u32,
}

impl Links {
    /// In no list.
    pub(crate) const LOOSE: Self = Self {
        before: NONE,
        after: NONE,
    };
}

/// Something that can be in a list.
pub(crate) trait Linked {
    fn links(&mut self) -> &mut Links;
}

/// The list. Every operation takes constant time.
#[derive(Clone, Debug)]
pub(crate) struct List {
    oldest: u32,
    newest: u32,
    length: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self {
        oldest: NONE,
        newest: NONE,
        length: 0,
    };

    pub(crate) fn len(&self) -> u32 {
        self.length
    }

    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub(crate) fn push<T: Linked>(&mut self, elements: &mut [T], index: u32) {
        *elements[index as usize].links() = Links {
            before: self.newest,
            after: NONE,
        };
        match self.newest {
            NONE => self.oldest = index,
            newest => elements[newest as usize].links().after = index,
        }
        self.newest = index;
        self.length += 1;
    }

    pub(crate) fn take<T: Linked>(&mut self, elements: &mut [T], index: u32) {
        let Links { before, after } = std::mem::replace(elements[index as usize].links(), Links::LOOSE);
        match before {
            NONE => self.oldest = after,
            before => elements[before as usize].links().after = after,
        }
        match after {
            NONE => self.newest = before,
            after => elements[after as usize].links().before = before,
        }
        self.length -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Element(Links);

    impl Linked for Element {
        fn links(&mut self) -> &mut Links {
            &mut self.0
        }
    }

    #[test]
    fn oldest_first_and_any_can_be_taken() {
        let mut elements: Vec<Element> = (0..5).map(|_| Element(Links::LOOSE)).collect();
        let mut list = List::EMPTY;
        for index in [3, 1, 4, 0] {
            list.push(&mut elements, index);
        }
        list.take(&mut elements, 4);
        list.take(&mut elements, 3);
        list.push(&mut elements, 3);
        let mut order = Vec::new();
        while let Some(index) = list.oldest() {
            list.take(&mut elements, index);
            order.push(index);
        }
        assert_eq!(order, [1, 0, 3]);
        assert_eq!(list.len(), 0);
    }
}
