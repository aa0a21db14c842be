//! Findings of which a hostile file can bring about any number.

/// The first thousand of something, and how many more there were.
#[derive(Debug, Clone)]
pub(crate) struct Kept<T> {
    pub(crate) first: Vec<T>,
    pub(crate) more: usize,
}

impl<T> Kept<T> {
    const MOST: usize = 1000;

    pub(crate) fn push(&mut self, item: T) {
        self.push_with(|| item);
    }

    /// Adds what is made only if it is kept.
    pub(crate) fn push_with(&mut self, item: impl FnOnce() -> T) {
        if self.first.len() < Self::MOST {
            self.first.push(item());
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// Adds others after these.
    pub(crate) fn append(&mut self, others: Self) {
        others.first.into_iter().for_each(|item| self.push(item));
        self.more = self.more.saturating_add(others.more);
    }

    pub(crate) fn count(&self) -> usize {
        self.first.len().saturating_add(self.more)
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { first: Vec::new(), more: 0 }
    }
}

impl<T> From<Vec<T>> for Kept<T> {
    fn from(items: Vec<T>) -> Self {
        let mut kept = Self::default();
        items.into_iter().for_each(|item| kept.push(item));
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_the_first_thousand_are_kept_and_all_are_counted() {
        let mut kept = Kept::from((0..900).collect::<Vec<_>>());
        kept.append(Kept::from((900..2000).collect::<Vec<_>>()));
        assert_eq!((kept.first.len(), kept.more, kept.count()), (1000, 1000, 2000));
        assert_eq!(kept.first, (0..1000).collect::<Vec<_>>());
        kept.push_with(|| unreachable!("it is not kept"));
    }
}
