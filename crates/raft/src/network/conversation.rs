//! A stream kept open for small questions asked one at a time.
//!
//! A call of its own costs several times what a message on an open stream does, and a member asks
//! thousands of times a second. Always true: the answer returned belongs to the question asked,
//! since questions are answered in order and a conversation whose answer did not arrive is over:
//! drop it when `exchange` fails or is given up.

use std::future::Future;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

pub(crate) struct Conversation<Q, A> {
    questions: mpsc::Sender<Q>,
    answers: Streaming<A>,
}

impl<Q: Send + 'static, A> Conversation<Q, A> {
    pub(crate) async fn open<F>(call: impl FnOnce(Request<ReceiverStream<Q>>) -> F) -> Result<Self, Status>
    where
        F: Future<Output = Result<Response<Streaming<A>>, Status>>,
    {
        let (questions, outgoing) = mpsc::channel(1);
        let answers = call(Request::new(ReceiverStream::new(outgoing))).await?.into_inner();
        Ok(Conversation { questions, answers })
    }

    pub(crate) async fn exchange(&mut self, question: Q) -> Result<A, Status> {
        self.questions.send(question).await.map_err(|_| over())?;
        self.answers.message().await?.ok_or_else(over)
    }

    /// Resolves when the stream ends or its connection breaks. Only while no answer is due.
    pub(crate) async fn ended(&mut self) -> Status {
        match self.answers.message().await {
            Err(status) => status,
            Ok(None) => over(),
            Ok(Some(_)) => Status::internal("the peer answered what it was not asked"),
        }
    }
}

fn over() -> Status {
    Status::unavailable("the peer has ended the stream")
}
