//! What brokers of other makes say about themselves in answers: the tagged field NodeEndpoints of KIP-951.

use bytes::{BufMut, Bytes, BytesMut};

/// A port that belongs to nobody here.
const PORT: i32 = 9092;

/// The answer with one endpoint, this node at this host, in the tagged fields of its end.
///
/// # Panics
/// When the answer has no tagged fields, or has one already, or the host is longer than a name may be.
pub(super) fn with_endpoint(frame: &Bytes, node_id: i32, host: &str) -> Bytes {
    let (tags, answer) = frame.split_last().expect("an answer is not empty");
    assert_eq!(*tags, 0, "a flexible answer without tagged fields ends with their count");
    let host_length = u8::try_from(host.len() + 1).ok().filter(|length| *length < 0x80).expect("a short host name");
    let mut field = BytesMut::new();
    // A compact array of one element: id, host, port, no rack, no further tags.
    field.put_u8(2);
    field.put_i32(node_id);
    field.put_u8(host_length);
    field.put_slice(host.as_bytes());
    field.put_i32(PORT);
    field.put_slice(&[0, 0]);
    let field_length = u8::try_from(field.len()).ok().filter(|length| *length < 0x80).expect("one short endpoint");
    let mut told = BytesMut::from(answer);
    // One field, its tag 0, its length.
    told.put_slice(&[1, 0, field_length]);
    told.put_slice(&field);
    let length = u32::try_from(told.len() - 4).expect("an answer fits into its length");
    told[..4].copy_from_slice(&length.to_be_bytes());
    told.freeze()
}
