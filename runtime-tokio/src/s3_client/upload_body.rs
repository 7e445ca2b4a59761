//! A request body that is a list of buffers: its length is known, and nothing is copied together.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use aws_sdk_s3::primitives::{ByteStream, SdkBody};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

struct UploadBody {
    buffers: VecDeque<Bytes>,
    left: u64,
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.buffers.pop_front();
        if let Some(bytes) = &next {
            self.left -= bytes.len() as u64;
        }
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.buffers.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The length of a list of buffers.
pub(crate) fn length(buffers: &[Bytes]) -> u64 {
    buffers.iter().map(|bytes| bytes.len() as u64).sum()
}

/// The buffers as a body of the SDK.
pub(crate) fn stream(buffers: Vec<Bytes>) -> ByteStream {
    let left = length(&buffers);
    ByteStream::new(SdkBody::from_body_1_x(UploadBody { buffers: buffers.into(), left }))
}
