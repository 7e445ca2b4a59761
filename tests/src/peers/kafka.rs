//! A Kafka client of single requests, for what must be seen exactly.

use std::io;

use bytes::{Bytes, BytesMut};
use kafscale_proxy_core::kafka::{Message, Request, ResponseHeader, Splitter, request_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LONGEST: usize = 256 * 1024 * 1024;

/// One connection.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    splitter: Splitter,
    correlation_id: i32,
}

impl Wire {
    /// Connects to `host:port`.
    ///
    /// # Panics
    /// When nobody listens.
    pub async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap_or_else(|error| panic!("{address}: {error}"));
        stream.set_nodelay(true).expect("a socket has TCP_NODELAY");
        Self { stream, splitter: Splitter::for_responses(LONGEST), correlation_id: 0 }
    }

    /// Sends a request and gives its correlation id.
    pub async fn send<R: Request>(&mut self, version: i16, request: &R) -> io::Result<i32> {
        self.correlation_id += 1;
        let frame = request_frame(self.correlation_id, Some("peer-wire"), version, request);
        self.stream.write_all(&frame).await?;
        Ok(self.correlation_id)
    }

    /// Sends bytes as they are.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// The next frame, length prefix included; `None` when the peer has closed.
    pub async fn receive_frame(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(frame) = self.splitter.next_frame().map_err(|error| io::Error::other(error.to_string()))? {
                return Ok(Some(frame.freeze()));
            }
            let mut bytes = BytesMut::with_capacity(64 * 1024);
            if self.stream.read_buf(&mut bytes).await? == 0 {
                return Ok(None);
            }
            self.splitter.push(bytes);
        }
    }

    /// The answer to a request of type `R`, with its correlation id; `None` when the peer has closed.
    ///
    /// # Panics
    /// When the answer is not one of that API and version.
    pub async fn receive<R: Request>(&mut self, version: i16) -> io::Result<Option<(i32, R::Response)>> {
        let Some(frame) = self.receive_frame().await? else { return Ok(None) };
        let (header, body) = ResponseHeader::decode(&frame, R::KEY, version).expect("a response header");
        let response = R::Response::decode(&frame.slice(body..), version)
            .unwrap_or_else(|error| panic!("{:?} v{version}: {error}: {frame:02x?}", R::KEY));
        Ok(Some((header.correlation_id, response)))
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Panics
    /// When there is none.
    pub async fn ask<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let sent = self.send(version, request).await.expect("the peer takes a request");
        let answer = self.receive::<R>(version).await.expect("the connection holds");
        let (correlation_id, response) = answer.unwrap_or_else(|| panic!("{:?} v{version}: closed, no answer", R::KEY));
        assert_eq!(correlation_id, sent, "answers carry the id of their request");
        response
    }

    /// Whether the peer closes without another frame.
    pub async fn is_closed(&mut self) -> bool {
        match self.receive_frame().await {
            Ok(frame) => frame.is_none(),
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}
