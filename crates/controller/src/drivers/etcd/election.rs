//! The driver of this controller's member: a task with a clock that sends its requests to etcd.

use super::client::Client;
use crate::drivers::clock::Clock;
use pathloom_cluster::etcd::{Failure, Request};
use pathloom_cluster::format::FORMAT;
use pathloom_cluster::{Input, Member, Output, Position, RequestId, Settings};
use pathloom_model::Nanos;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};
use tokio::time::{sleep, timeout};

/// Time between two log lines that say the same of etcd.
const SAYS_AGAIN_AFTER: Nanos = Nanos::from_secs(60);
/// How long a stop waits until etcd has ended the lease, so that another controller leads at once.
const STOP: Duration = Duration::from_millis(500);

/// The election, as the rest of the controller sees it.
pub(crate) struct Election {
    inputs: UnboundedSender<Input>,
    positions: UnboundedReceiver<Position>,
    ended: UnboundedReceiver<()>,
}

impl Election {
    /// Starts the member.
    pub(crate) fn start(settings: Settings, client: Rc<Client>, clock: Clock) -> Election {
        let (inputs, received) = unbounded_channel();
        let (decided, positions) = unbounded_channel();
        let (end, ended) = unbounded_channel();
        let (member, complaints) = (Member::new(settings, clock.now()), Rc::default());
        let driver = Driver { member, client, clock, inputs: inputs.clone(), decided, complaints };
        tokio::task::spawn_local(async move {
            driver.run(received).await;
            drop(end);
        });
        Election { inputs, positions, ended }
    }

    /// The next decision. None comes after [`Election::stop`].
    pub(crate) async fn next(&mut self) -> Position {
        match self.positions.recv().await {
            Some(position) => position,
            None => std::future::pending().await,
        }
    }

    /// A switch has refused this controller as the leader.
    pub(crate) fn refused_by_switch(&self) {
        let _ = self.inputs.send(Input::RefusedBySwitch);
    }

    /// Leaves the cluster. Waits until etcd knows it, or has not answered for a while.
    pub(crate) async fn stop(mut self) {
        let _ = self.inputs.send(Input::Stop);
        let _ = timeout(STOP, self.ended.recv()).await;
    }
}

struct Driver {
    member: Member,
    client: Rc<Client>,
    clock: Clock,
    inputs: UnboundedSender<Input>,
    decided: UnboundedSender<Position>,
    complaints: Rc<Complaints>,
}

/// What the log has said of etcd, and when.
#[derive(Default)]
struct Complaints(RefCell<Option<(String, Nanos)>>);

impl Complaints {
    /// Logs why a request failed, once a minute if it stays the same.
    fn log(&self, now: Nanos, failure: &Failure) {
        let why = match failure {
            Failure::Unanswered => "it does not answer",
            Failure::NoSpace => "it has no space; compact and defragment it, and disarm its alarm",
            Failure::Other(why) => why,
            // The member knows what to do.
            _ => return,
        };
        let mut last = self.0.borrow_mut();
        if last.as_ref().is_none_or(|(said, at)| said != why || now >= *at + SAYS_AGAIN_AFTER) {
            tracing::warn!(why, "a request to etcd failed");
            *last = Some((why.to_owned(), now));
        }
    }
}

impl Driver {
    /// Runs until the member has left the cluster.
    async fn run(mut self, mut received: UnboundedReceiver<Input>) {
        loop {
            tokio::select! {
                biased;
                () = sleep(self.clock.until(self.member.poll_timeout())) => self.member.handle_timeout(self.clock.now()),
                Some(input) = received.recv() => {
                    let is_stop = input == Input::Stop;
                    self.member.handle(self.clock.now(), input);
                    if is_stop {
                        return self.leave().await;
                    }
                }
            }
            while let Some(output) = self.member.poll_output() {
                match output {
                    Output::Position(position) => drop(self.decided.send(position)),
                    Output::WentBack { from, to } => tracing::error!(
                        from,
                        to,
                        "etcd's revision went back: etcd was restored from a backup; run `pathloom-controller restored FILE {from}`"
                    ),
                    Output::UnknownFormat(format) => tracing::error!(
                        format,
                        known = FORMAT,
                        "the keys in etcd are of a later version, so this controller does not lead; upgrade it"
                    ),
                    Output::Request { id, request } => self.send(id, request),
                }
            }
        }
    }

    /// Sends what the member leaves with.
    async fn leave(mut self) {
        while let Some(output) = self.member.poll_output() {
            if let Output::Request { request, .. } = output {
                let _ = self.client.ask(&request).await;
            }
        }
    }

    fn send(&self, id: RequestId, request: Request) {
        let (client, inputs) = (self.client.clone(), self.inputs.clone());
        let (clock, complaints) = (self.clock, self.complaints.clone());
        tokio::task::spawn_local(async move {
            if matches!(request, Request::Watch { .. }) {
                let changed = |changes| drop(inputs.send(Input::Changed { id, changes: Ok(changes) }));
                let failure = client.watch(&request, changed).await;
                return drop(inputs.send(Input::Changed { id, changes: Err(failure) }));
            }
            let answer = client.ask(&request).await;
            if let Err(failure) = &answer {
                complaints.log(clock.now(), failure);
            }
            drop(inputs.send(Input::Answered { id, answer }));
        });
    }
}
