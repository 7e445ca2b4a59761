//! A part that is being filled from the pieces in which its body comes.

use bytes::{Bytes, BytesMut};

/// Pieces from this size on are kept as they are. Smaller ones are copied together: a client that sends byte by byte
/// would else cost many times its bytes, and those are not in any budget.
const KEPT_BYTES: usize = 4 * 1024;
/// Small pieces are copied together up to this size.
const JOINED_BYTES: usize = 64 * 1024;

/// The bytes of one part, in order.
#[derive(Debug, Default)]
pub(super) struct Filling {
    pieces: Vec<Bytes>,
    joined: BytesMut,
    bytes: usize,
}

impl Filling {
    /// Bytes so far.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the next piece.
    pub(super) fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        if piece.len() >= KEPT_BYTES {
            self.end_joined();
            self.pieces.push(piece);
            return;
        }
        self.joined.extend_from_slice(&piece);
        if self.joined.len() >= JOINED_BYTES {
            self.end_joined();
        }
    }

    /// All pieces so far, in order.
    pub(super) fn pieces(&mut self) -> &[Bytes] {
        self.end_joined();
        &self.pieces
    }

    /// All pieces, in order.
    pub(super) fn into_pieces(mut self) -> Vec<Bytes> {
        self.end_joined();
        self.pieces
    }

    fn end_joined(&mut self) {
        if !self.joined.is_empty() {
            self.pieces.push(self.joined.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(pieces: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let mut filling = Filling::default();
        let mut sent = Vec::new();
        for (place, size) in pieces.into_iter().enumerate() {
            let piece = vec![place as u8; size];
            sent.extend_from_slice(&piece);
            filling.push(piece.into());
        }
        assert_eq!(filling.bytes(), sent.len());
        let pieces = filling.into_pieces();
        assert_eq!(pieces.concat(), sent);
        pieces.iter().map(Bytes::len).collect()
    }

    #[test]
    fn small_pieces_are_joined_and_large_ones_are_kept() {
        assert_eq!(sizes([]), [0; 0]);
        assert_eq!(sizes([1, 2, 3]), [6]);
        assert_eq!(sizes([KEPT_BYTES, KEPT_BYTES]), [KEPT_BYTES, KEPT_BYTES]);
        assert_eq!(sizes([1, KEPT_BYTES, 2, 3, KEPT_BYTES - 1]), [1, KEPT_BYTES, KEPT_BYTES + 4]);
        assert_eq!(sizes(std::iter::repeat_n(1, JOINED_BYTES + 5)), [JOINED_BYTES, 5]);
    }

    #[test]
    fn nothing_is_lost_or_changed_by_a_look() {
        let mut filling = Filling::default();
        filling.push(Bytes::from_static(b"ab"));
        assert_eq!(filling.pieces().concat(), b"ab");
        filling.push(Bytes::from_static(b"c"));
        assert_eq!(filling.pieces().concat(), b"abc");
        assert_eq!(filling.bytes(), 3);
        assert_eq!(filling.into_pieces().concat(), b"abc");
    }

    #[test]
    fn a_kept_piece_is_not_copied() {
        let piece = Bytes::from(vec![7; KEPT_BYTES]);
        let mut filling = Filling::default();
        filling.push(piece.clone());
        assert_eq!(filling.into_pieces()[0].as_ptr(), piece.as_ptr());
    }
}
