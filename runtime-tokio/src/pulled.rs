//! Streams that are read on request: HTTP request bodies and S3 objects, in pieces worth a call of the machine.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafscale_proxy_core::inputs::ReadResult;

/// Pieces are gathered up to this size, when that many bytes come at once.
const GATHERED: usize = 64 * 1024;
/// How long a smaller piece waits for more: shorter than anybody notices, longer than a burst of packets.
const GATHER_TIME: Duration = Duration::from_millis(10);

/// Where the bytes come from.
pub(crate) trait Source {
    /// The next bytes as they come; `None` at the end that the framing announced. Dropping the future loses nothing.
    async fn next(&mut self) -> Option<Result<Bytes, String>>;
    /// Whether the end is known to be reached without asking.
    fn is_at_end(&self) -> bool;
}

/// A source with what was received and not handed on yet.
pub(crate) struct Pulled<S> {
    source: S,
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    ended: Option<ReadResult>,
}

impl<S: Source> Pulled<S> {
    pub(crate) fn new(source: S) -> Self {
        Self { source, waiting: VecDeque::new(), waiting_bytes: 0, ended: None }
    }

    /// Whether everything was handed on and the end is known.
    pub(crate) fn is_at_end(&self) -> bool {
        let at_end = self.ended == Some(ReadResult::End) || self.source.is_at_end();
        self.waiting.is_empty() && at_end
    }

    /// At most `max_bytes`, or the end, or the break. What came before a break is handed on first.
    pub(crate) async fn read(&mut self, max_bytes: usize) -> ReadResult {
        let wanted = max_bytes.clamp(1, GATHERED);
        while self.ended.is_none() && self.waiting_bytes < wanted && !self.source.is_at_end() {
            let next = if self.waiting.is_empty() {
                self.source.next().await
            } else {
                match tokio::time::timeout(GATHER_TIME, self.source.next()).await {
                    Ok(next) => next,
                    Err(_) => break,
                }
            };
            match next {
                Some(Ok(bytes)) if bytes.is_empty() => {}
                Some(Ok(bytes)) => {
                    self.waiting_bytes += bytes.len();
                    self.waiting.push_back(bytes);
                }
                Some(Err(error)) => self.ended = Some(ReadResult::Broken(error)),
                None => self.ended = Some(ReadResult::End),
            }
        }
        match self.take(max_bytes.max(1)) {
            Some(bytes) => ReadResult::Chunk(bytes),
            None => self.ended.clone().unwrap_or(ReadResult::End),
        }
    }

    fn take(&mut self, max_bytes: usize) -> Option<Bytes> {
        let mut first = self.waiting.pop_front()?;
        if first.len() > max_bytes {
            let rest = first.split_off(max_bytes);
            self.waiting.push_front(rest);
        } else if let Some(second) = self.waiting.front()
            && first.len() + second.len() <= max_bytes
        {
            // Small pieces are worth a copy; a single large one never takes this way.
            let mut gathered = BytesMut::with_capacity(self.waiting_bytes.min(max_bytes));
            gathered.extend_from_slice(&first);
            while let Some(next) = self.waiting.pop_front_if(|next| gathered.len() + next.len() <= max_bytes) {
                gathered.extend_from_slice(&next);
            }
            first = gathered.freeze();
        }
        self.waiting_bytes -= first.len();
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Script(VecDeque<Option<Result<Bytes, String>>>);

    impl Source for Script {
        async fn next(&mut self) -> Option<Result<Bytes, String>> {
            self.0.pop_front().flatten()
        }

        fn is_at_end(&self) -> bool {
            self.0.is_empty()
        }
    }

    async fn read_all(script: Vec<Option<Result<Bytes, String>>>, max_bytes: usize) -> (Vec<usize>, ReadResult) {
        let mut pulled = Pulled::new(Script(script.into()));
        let mut sizes = Vec::new();
        loop {
            match pulled.read(max_bytes).await {
                ReadResult::Chunk(bytes) => sizes.push(bytes.len()),
                end @ (ReadResult::End | ReadResult::Broken(_)) => return (sizes, end),
            }
        }
    }

    fn piece(size: usize) -> Option<Result<Bytes, String>> {
        Some(Ok(Bytes::from(vec![7; size])))
    }

    #[tokio::test]
    async fn pieces_are_gathered_and_cut() {
        let broken = || Some(Err("reset".to_owned()));
        let table = [
            (vec![], 10, vec![], ReadResult::End),
            (vec![piece(0), None], 10, vec![], ReadResult::End),
            (vec![piece(3), piece(4), piece(5), None], 10, vec![7, 5], ReadResult::End),
            (vec![piece(25), None], 10, vec![10, 10, 5], ReadResult::End),
            (vec![piece(25), piece(5), None], 10, vec![10, 10, 10], ReadResult::End),
            (vec![piece(100_000), piece(100_000), None], 262_144, vec![100_000, 100_000], ReadResult::End),
            (vec![piece(40_000), piece(40_000), None], 262_144, vec![80_000], ReadResult::End),
            (vec![broken()], 10, vec![], ReadResult::Broken("reset".into())),
            (vec![piece(3), piece(4), broken()], 100, vec![7], ReadResult::Broken("reset".into())),
        ];
        for (script, max_bytes, sizes, end) in table {
            assert_eq!(read_all(script.clone(), max_bytes).await, (sizes, end), "{script:?}");
        }
    }

    struct Never;

    impl Source for Never {
        async fn next(&mut self) -> Option<Result<Bytes, String>> {
            std::future::pending().await
        }

        fn is_at_end(&self) -> bool {
            false
        }
    }

    #[tokio::test]
    async fn a_small_piece_does_not_wait_for_ever() {
        let mut pulled = Pulled::new(Never);
        pulled.waiting.push_back(Bytes::from_static(b"slow"));
        pulled.waiting_bytes = 4;
        assert_eq!(pulled.read(100).await, ReadResult::Chunk("slow".into()));
        assert!(!pulled.is_at_end());
    }
}
