//! Brokers that answer anything: every client gets answers in order or a closed connection all the same.

use std::cell::RefCell;
use std::time::Duration;

use bytes::Bytes;

use super::draw::{Draw, put_piece};
use super::hostile_client::frame;
use super::lone_shard::{Asked, Does, LoneShard};
use super::transcripts::{Exchange, answer_frame, exchanges, honest_answer};

/// How many requests one input makes at most.
const REQUESTS_MAX: u8 = 8;

/// How many requests, which ones (index of `exchanges`), and whether a blob is uploaded; then what the brokers say, one
/// after the other, as `says` has it.
pub fn broker_answers(input: &[u8]) {
    let draw = RefCell::new(Draw::new(input));
    let known = exchanges();
    let (requests, uploads) = {
        let mut draw = draw.borrow_mut();
        let count = draw.byte() % (REQUESTS_MAX + 1);
        let requests: Vec<&Exchange> = (0..count).map(|_| &known[usize::from(draw.short()) % known.len()]).collect();
        (requests, draw.byte() % 2 == 1)
    };
    let mut shard = LoneShard::new(|asked| says(&mut draw.borrow_mut(), asked));
    let client = shard.connect();
    for (correlation_id, request) in (1..).zip(requests) {
        shard.send(client, &frame(request.api, request.version, correlation_id, &request.request));
        shard.run(Duration::from_millis(50));
    }
    let upload = uploads.then(|| super::http_heads::upload(&mut shard));
    shard.run(Duration::from_secs(120));
    shard.client(client).check_answered();
    if let Some(upload) = upload {
        let upload = shard.exchange(upload);
        assert!(upload.status().is_some() || upload.is_aborted(), "an upload is answered");
    }
    shard.end();
}

/// A body with an honest header; bytes that are no frame; an honest answer, cut or with a byte changed; silence; the end of
/// the connection. When the input is used up, brokers are honest.
fn says(draw: &mut Draw<'_>, asked: &Asked) -> Does {
    if draw.is_empty() {
        return honest_answer(asked).map_or(Does::Close, Does::Write);
    }
    match draw.byte() % 8 {
        0..=2 => Does::Write(answer_frame(asked, draw.piece())),
        3 => Does::Write(Bytes::copy_from_slice(draw.piece())),
        4 => {
            let (at, value) = (usize::from(draw.short()), draw.byte());
            damaged(asked, |frame| {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            })
        }
        5 => {
            let length = usize::from(draw.short());
            damaged(asked, |frame| frame.truncate(length))
        }
        6 => Does::Hang,
        _ => Does::Close,
    }
}

fn damaged(asked: &Asked, damage: impl FnOnce(&mut Vec<u8>)) -> Does {
    let Some(answer) = honest_answer(asked) else { return Does::Close };
    let mut answer = answer.to_vec();
    damage(&mut answer);
    Does::Write(answer.into())
}

/// The input in which one request is made, and a broker answers it with this body.
pub(super) fn broker_answer_input(index: usize, body: &[u8]) -> Vec<u8> {
    let index = u16::try_from(index).expect("there are few exchanges").to_be_bytes();
    let mut out = vec![1, index[0], index[1], 0, 0];
    put_piece(&mut out, body);
    out
}
