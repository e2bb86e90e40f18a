//! The answers of one streaming call.
//!
//! The call is opened in the background, because a server may send nothing, not even headers, until
//! it has something to say. Dropping the answers ends the call.

use std::time::Duration;

use tokio::task::JoinHandle;
use tonic::{Response, Status, Streaming};

/// A call that is being opened, is open, or was refused.
#[derive(Debug)]
pub enum Answers<T> {
    Opening(Opening<T>),
    Open(Box<Streaming<T>>),
    Refused(Status),
}

/// A task that ends with its owner.
#[derive(Debug)]
pub struct Opening<T>(JoinHandle<Result<Response<Streaming<T>>, Status>>);

impl<T> Drop for Opening<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T: Send + 'static> Answers<T> {
    /// Opens a call. Must be called on a runtime.
    pub fn of(call: impl Future<Output = Result<Response<Streaming<T>>, Status>> + Send + 'static) -> Self {
        Self::Opening(Opening(tokio::spawn(call)))
    }

    /// The next answer, or nothing at the end; none if time is up first. May be cancelled at any await
    /// without loss.
    pub async fn next(&mut self, within: Duration) -> Option<Result<Option<T>, Status>> {
        tokio::time::timeout(within, self.message()).await.ok()
    }

    async fn message(&mut self) -> Result<Option<T>, Status> {
        if let Self::Opening(opening) = self {
            *self = match (&mut opening.0).await {
                Ok(Ok(open)) => Self::Open(Box::new(open.into_inner())),
                Ok(Err(status)) => Self::Refused(status),
                Err(error) => Self::Refused(Status::unknown(format!("the opening task ended: {error}"))),
            };
        }
        match self {
            Self::Open(open) => open.message().await,
            Self::Refused(status) => Err(status.clone()),
            Self::Opening(_) => Ok(None),
        }
    }
}
