//! Watches: one stream each, opened again from the revision it had reached.
//!
//! ```text
//! stream of lines -> events, cut where a transaction ends -> a few batches wait -> Watch::next
//!        ^-- ended, silent at a member that is not alive: the next member, from the next revision
//! ```
//!
//! Always true:
//! 1. Events are handed on only when their transaction is whole, and `from` is behind all that were.
//! 2. At most [`BATCHES`] batches wait; then the stream is not read.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::super::checked::Asked;
use super::super::{Event, MetaError, Revision};
use super::calls::{Cluster, Failure};
use super::http::{ANSWER_MAX, Stream};
use super::wire::{Complaint, Line, Watched};

/// Batches that wait for their reader.
pub const BATCHES: usize = 4;
/// After so long a silence the member is asked whether it is alive.
const SILENCE: Duration = Duration::from_secs(3);
/// Before another member is tried.
const PAUSE: Duration = Duration::from_millis(100);

pub type Batch = Result<Vec<Event>, MetaError>;

/// One watch on its way through its streams.
pub struct Follower {
    pub cluster: Arc<Cluster>,
    pub prefix: String,
    /// Everything before was handed on.
    pub from: Revision,
    /// Where events go.
    pub to: mpsc::Sender<Batch>,
    /// Notified once the first stream is there.
    pub created: Option<oneshot::Sender<()>>,
}

/// Why a stream ended.
enum End {
    /// No task reads any more, or it has been notified of the end.
    Over,
    /// Another one may go on; why.
    Lost(String),
    /// Not let in; perhaps the token is old.
    Denied(String),
}

impl Follower {
    pub async fn follow(mut self) {
        let to = self.to.clone();
        tokio::select! {
            () = self.streams() => {}
            // No task reads any more.
            () = to.closed() => {}
        }
    }

    async fn streams(&mut self) {
        let mut at = self.cluster.preferred.load(Ordering::Relaxed);
        let mut denied = 0;
        let mut token = 0;
        loop {
            at %= self.cluster.endpoints.len();
            let old = (denied > 0).then_some(token);
            let ended = match self.cluster.token(old).await {
                Ok((number, text)) => {
                    token = number;
                    self.stream(at, text.as_deref(), &mut denied).await
                }
                Err(Failure::Never(why)) => End::Denied(why),
                Err(_) => End::Lost("no token".to_owned()),
            };
            match ended {
                End::Over => return,
                End::Denied(why) if denied >= 2 => {
                    let failure = Failure::Never(why);
                    let error = failure.error(&self.cluster, Asked::Watch(&self.prefix), None);
                    let _ = self.to.send(Err(error)).await;
                    return;
                }
                End::Denied(_) => denied += 1,
                End::Lost(why) => {
                    let url = &self.cluster.endpoints[at].url;
                    tracing::debug!("a watch at {url} ended and goes on elsewhere: {why}");
                    at += 1;
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// One stream to its end.
    async fn stream(&mut self, at: usize, token: Option<&str>, denied: &mut u32) -> End {
        let cluster = Arc::clone(&self.cluster);
        let asked = cluster.names.watch(&self.prefix, self.from).to_string();
        let asked = Bytes::from(asked);
        let opened = cluster.endpoints[at]
            .stream(
                "/v3/watch",
                &asked,
                token,
                cluster.connect_timeout,
                cluster.call_timeout,
            )
            .await;
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(fault) => return End::Lost(format!("{fault:?}")),
        };
        let mut begun = Vec::new();
        let mut text = BytesMut::new();
        loop {
            let line = match next_line(&cluster, at, &mut stream, &mut text).await {
                Ok(line) => line,
                Err(why) => return End::Lost(why),
            };
            let line: Line<Watched> = match serde_json::from_slice(&line) {
                Ok(line) => line,
                Err(why) => return End::Lost(why.to_string()),
            };
            let Some(watched) = line.result else {
                return complained(line.error.unwrap_or_default());
            };
            if watched.canceled {
                return self.cancelled(watched).await;
            }
            if watched.created {
                *denied = 0;
                if let Some(created) = self.created.take() {
                    let _ = created.send(());
                }
            }
            if let Err(end) = self.take_in(watched, &mut begun).await {
                return end;
            }
        }
    }

    async fn cancelled(&mut self, watched: Watched) -> End {
        if watched.compact_revision > 0 {
            if let Some(created) = self.created.take() {
                let _ = created.send(());
            }
            let compacted = MetaError::Compacted {
                store: self.cluster.name.clone(),
                oldest: Revision(watched.compact_revision),
            };
            let _ = self.to.send(Err(compacted)).await;
            return End::Over;
        }
        if watched.cancel_reason.contains("permission denied") {
            return End::Denied(watched.cancel_reason);
        }
        End::Lost(watched.cancel_reason)
    }

    /// Takes in one line; hands on what is whole. `begun`: what may go on in the next line.
    async fn take_in(&mut self, watched: Watched, begun: &mut Vec<Event>) -> Result<(), End> {
        for raw in watched.events {
            let event = self.cluster.names.event(raw);
            let event = event.map_err(|foreign| End::Lost(foreign.to_string()))?;
            // What was handed on is never handed on again, whatever a server says.
            if event.revision() >= self.from {
                begun.push(event);
            }
        }
        let Some(last) = begun.last().map(Event::revision) else {
            return Ok(());
        };
        let whole = if watched.fragment {
            begun.partition_point(|event| event.revision() < last)
        } else {
            begun.len()
        };
        let rest = begun.split_off(whole);
        let batch = std::mem::replace(begun, rest);
        let Some(reached) = batch.last().map(Event::revision) else {
            return Ok(());
        };
        if self.to.send(Ok(batch)).await.is_err() {
            return Err(End::Over);
        }
        self.from = Revision(reached.0 + 1);
        Ok(())
    }
}

fn complained(error: Value) -> End {
    let complaint = Complaint::read(&error);
    let message = complaint.map_or_else(|| error.to_string(), |it| it.message);
    if message.contains("permission denied") || message.contains("auth token") {
        return End::Denied(message);
    }
    End::Lost(message)
}

/// The next line of the stream; waits for it as long as the member is alive.
async fn next_line(
    cluster: &Cluster,
    at: usize,
    stream: &mut Stream,
    text: &mut BytesMut,
) -> Result<Bytes, String> {
    let mut searched = 0;
    loop {
        if let Some(end) = text[searched..].iter().position(|byte| *byte == b'\n') {
            let line = text.split_to(searched + end + 1).freeze();
            if line.trim_ascii().is_empty() {
                searched = 0;
                continue;
            }
            return Ok(line);
        }
        searched = text.len();
        if searched > ANSWER_MAX {
            return Err(format!("a line of more than {ANSWER_MAX} bytes"));
        }
        let Ok(next) = timeout(SILENCE, stream.body.frame()).await else {
            if cluster.is_alive(at).await {
                continue;
            }
            return Err("the member does not answer".to_owned());
        };
        match next {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    text.extend_from_slice(&data);
                }
            }
            Some(Err(why)) => return Err(why.to_string()),
            // An error has no line of its own.
            None if !text.trim_ascii().is_empty() => return Ok(text.split().freeze()),
            None => return Err(format!("it ended ({})", stream.status)),
        }
    }
}
