//! Choices drawn from the bytes of a fuzzer; zeros when they are used up.

/// What is left of an input.
pub(super) struct Draw<'a> {
    rest: &'a [u8],
}

impl<'a> Draw<'a> {
    /// From the start of an input.
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    /// Whether everything was drawn.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// One byte.
    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    /// Two bytes, big-endian.
    pub(super) fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// One of a list that is not empty, by one byte.
    pub(super) fn choose<'b, T>(&mut self, list: &'b [T]) -> &'b T {
        &list[usize::from(self.byte()) % list.len()]
    }

    /// A piece whose length stands before it in two bytes, cut where the input ends.
    pub(super) fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(self.short()).min(self.rest.len());
        let (piece, rest) = self.rest.split_at(length);
        self.rest = rest;
        piece
    }

    /// Everything that is left.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
}

/// Appends what [`Draw::piece`] reads; a longer one is cut.
pub(super) fn put_piece(out: &mut Vec<u8>, piece: &[u8]) {
    let length = u16::try_from(piece.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&piece[..usize::from(length)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_and_what_is_missing_is_zero() {
        let mut input = vec![7];
        put_piece(&mut input, b"abc");
        input.extend_from_slice(&[0, 9, 1]);
        let mut draw = Draw::new(&input);
        assert_eq!((draw.byte(), draw.piece()), (7, &b"abc"[..]));
        assert_eq!((draw.piece(), draw.is_empty()), (&[1][..], true));
        assert_eq!((draw.byte(), draw.short(), draw.piece()), (0, 0, &[][..]));
    }
}
