//! Requests of the API to the controller. The API has its own thread. The controller's thread handles its requests
//! between other work, and the answer is an owned copy. So there is no lock, and no client delays the controller.

use super::problem::Problem;
use crate::drivers::session::Shared;
use crate::hub::Hub;
use pathloom_model::Nanos;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of waiting requests.
const WAITING: usize = 256;
/// How long a request waits for its answer.
const PATIENCE: Duration = Duration::from_secs(5);

type Question = Box<dyn FnOnce(&Shared) + Send>;

/// Sends requests to the controller.
#[derive(Clone)]
pub(crate) struct Asker(mpsc::Sender<Question>);

/// The receiving end of the requests.
pub(crate) struct Questions(mpsc::Receiver<Question>);

pub(crate) fn channel() -> (Asker, Questions) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (Asker(sender), Questions(receiver))
}

impl Asker {
    /// Runs `question` in the controller's thread. It must be short, because the thread does nothing else meanwhile.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Hub, Nanos) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        self.ask_driver(|shared| shared.drive(question)).await
    }

    /// As [`Asker::ask`], for questions that need more than the hub.
    pub(crate) async fn ask_driver<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Shared) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let (sender, receiver) = oneshot::channel();
        let question: Question = Box::new(move |shared| {
            // The client may have gone.
            let _ = sender.send(question(shared));
        });
        let asked = async {
            self.0.send(question).await.ok()?;
            receiver.await.ok()
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(Problem::busy("the controller is stopping")),
            Err(_) => Err(Problem::busy(format!("it did not answer within {} s", PATIENCE.as_secs()))),
        }
    }
}

/// Handles requests, one at a time, with other work between two of them.
pub(crate) async fn answer(shared: Shared, mut questions: Questions) {
    while let Some(question) = questions.0.recv().await {
        question(&shared);
        tokio::task::yield_now().await;
    }
}
