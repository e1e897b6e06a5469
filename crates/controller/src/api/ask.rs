//! Questions to the controller. The API has a thread of its own; what it asks is done by the controller's thread
//! between two other things, and the answer is an owned copy. So no lock is taken, and no client can hold the
//! controller up.

use super::problem::Problem;
use crate::hub::Hub;
use crate::session::Shared;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Questions that may wait.
const WAITING: usize = 256;
/// How long a question waits.
const PATIENCE: Duration = Duration::from_secs(5);

type Question = Box<dyn FnOnce(&mut Hub) + Send>;

/// Asks the controller.
#[derive(Clone)]
pub(crate) struct Asker(mpsc::Sender<Question>);

/// Where questions come out.
pub(crate) struct Questions(mpsc::Receiver<Question>);

pub(crate) fn channel() -> (Asker, Questions) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (Asker(sender), Questions(receiver))
}

impl Asker {
    /// Has `question` done by the controller's thread. It must be short, for nothing else is done meanwhile.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Hub) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let (sender, receiver) = oneshot::channel();
        let question: Question = Box::new(move |hub| {
            // The client may have gone.
            let _ = sender.send(question(hub));
        });
        let asked = async {
            self.0.send(question).await.ok()?;
            receiver.await.ok()
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(Problem::busy("the controller is stopping")),
            Err(_) => Err(Problem::busy(format!("it had no time for this within {} s", PATIENCE.as_secs()))),
        }
    }
}

/// Answers questions, one at a time: others have their turn between two of them.
pub(crate) async fn answer(shared: Shared, mut questions: Questions) {
    while let Some(question) = questions.0.recv().await {
        question(&mut shared.hub.borrow_mut());
        tokio::task::yield_now().await;
    }
}
