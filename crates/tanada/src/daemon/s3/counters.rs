//! What a gateway was asked, for metrics.
//!
//! ```text
//! request -> method, answer -> class of its status, bytes both ways -> counters, which only grow
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::{Method, StatusCode};

/// Methods as metrics call them; the last is any other.
const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "POST", "DELETE", "other"];
/// The first digits of answers, from 2 on.
const CODES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// What a gateway was asked since it was opened.
#[derive(Debug, Default)]
pub struct GatewayCounters {
    requests: [[AtomicU64; CODES.len()]; METHODS.len()],
    /// Of bodies, from clients and to them.
    pub received: AtomicU64,
    pub sent: AtomicU64,
    pub connections: AtomicU64,
}

impl GatewayCounters {
    /// A request was answered.
    pub fn answered(&self, method: &Method, status: StatusCode) {
        let of = METHODS.iter().position(|it| *it == method.as_str());
        let of = of.unwrap_or(METHODS.len() - 1);
        let class = usize::from(status.as_u16() / 100).clamp(2, 5) - 2;
        self.requests[of][class].fetch_add(1, Ordering::Relaxed);
    }

    /// A connection came; it goes when what is answered is dropped.
    pub fn connected(self: &Arc<Self>) -> Connected {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Connected(Arc::clone(self))
    }

    /// Method, class of the status and how many, of all that there were.
    pub fn requests(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut all = Vec::new();
        for (method, row) in METHODS.iter().zip(&self.requests) {
            for (code, count) in CODES.iter().zip(row) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    all.push((*method, *code, count));
                }
            }
        }
        all
    }
}

/// A connection that is open.
pub struct Connected(Arc<GatewayCounters>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer, whose bytes are counted as they go.
pub struct Sent {
    body: s3s::Body,
    counters: Arc<GatewayCounters>,
}

impl Sent {
    pub fn new(body: s3s::Body, counters: Arc<GatewayCounters>) -> Sent {
        Sent { body, counters }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = <s3s::Body as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            let len = frame.data_ref().map_or(0, |it| it.len() as u64);
            self.counters.sent.fetch_add(len, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_method_and_class() {
        let counters = Arc::new(GatewayCounters::default());
        counters.answered(&Method::GET, StatusCode::OK);
        counters.answered(&Method::GET, StatusCode::PARTIAL_CONTENT);
        counters.answered(&Method::PUT, StatusCode::SERVICE_UNAVAILABLE);
        counters.answered(&Method::PATCH, StatusCode::NOT_FOUND);
        let expected = [("GET", "2xx", 2), ("PUT", "5xx", 1), ("other", "4xx", 1)];
        assert_eq!(counters.requests(), expected);
        let one = counters.connected();
        assert_eq!(counters.connections.load(Ordering::Relaxed), 1);
        drop(one);
        assert_eq!(counters.connections.load(Ordering::Relaxed), 0);
    }
}
