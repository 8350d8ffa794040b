//! One thread per rank, each with its backend: the same steps in the same order on every one.
//! Threads park on channels and never spin. A rank that fails or panics speaks for all: the group is dead after that.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use m3_abi::{Backend, Output, Ticket};

use crate::contain::contain;
use crate::scheduler::Step;

enum Command {
    Submit(Arc<Step>),
    /// Until the oldest step not yet waited for is done.
    Wait,
}

struct Reply {
    rank: usize,
    /// A fault as a sentence that names the rank.
    outcome: Result<Output, String>,
}

/// All ranks of one model.
pub struct Ranks {
    commands: Vec<Sender<Command>>,
    replies: Receiver<Reply>,
    threads: Vec<JoinHandle<()>>,
    fault: Option<String>,
}

impl Ranks {
    /// `backends` in rank order, reserved and warmed.
    pub fn start(backends: Vec<Box<dyn Backend>>) -> io::Result<Self> {
        let (reply, replies) = channel();
        let mut ranks = Ranks { commands: Vec::new(), replies, threads: Vec::new(), fault: None };
        for (rank, backend) in backends.into_iter().enumerate() {
            let (sender, commands) = channel();
            let reply = reply.clone();
            let thread = Builder::new().name(format!("m3-rank-{rank}"));
            ranks.threads.push(thread.spawn(move || serve(rank, backend, &commands, &reply))?);
            ranks.commands.push(sender);
        }
        Ok(ranks)
    }

    /// Hands a step to every rank; a fault shows at the next [`Self::wait`].
    pub fn submit(&mut self, step: Step) {
        let step = Arc::new(step);
        for commands in &self.commands {
            // A rank that has gone has left its reason among the replies.
            let _ = commands.send(Command::Submit(step.clone()));
        }
    }

    /// Rank 0's results of the oldest step, once every rank is done with it. The first fault is final, and the
    /// other ranks, which may be waiting for the failed one, are not waited for.
    pub fn wait(&mut self) -> Result<Output, String> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        for commands in &self.commands {
            let _ = commands.send(Command::Wait);
        }
        self.collect().inspect_err(|fault| self.fault = Some(fault.clone()))
    }

    /// Lets every rank finish its steps and close; not to be called after a fault, when a rank may hang.
    pub fn close(self) {
        drop(self.commands);
        for thread in self.threads {
            let _ = thread.join();
        }
    }

    fn collect(&self) -> Result<Output, String> {
        let mut first = Output::default();
        for _ in 0..self.threads.len() {
            let reply =
                self.replies.recv().map_err(|_| "every rank has ended without a reason".to_owned())?;
            let output = reply.outcome?;
            if reply.rank == 0 {
                first = output;
            }
        }
        Ok(first)
    }
}

fn serve(rank: usize, mut backend: Box<dyn Backend>, commands: &Receiver<Command>, replies: &Sender<Reply>) {
    // Outlives the backend, which may read the masks of a step until it is closed.
    let mut in_flight = VecDeque::new();
    let name = format!("the backend of rank {rank}");
    let outcome = contain(&name, || take_steps(rank, &mut *backend, &mut in_flight, commands, replies));
    if let Err(reason) = outcome.flatten() {
        let _ = replies.send(Reply { rank, outcome: Err(reason) });
    }
    let _ = contain(&name, || drop(backend));
}

fn take_steps(
    rank: usize,
    backend: &mut dyn Backend,
    in_flight: &mut VecDeque<(Ticket, Arc<Step>)>,
    commands: &Receiver<Command>,
    replies: &Sender<Reply>,
) -> Result<(), String> {
    while let Ok(command) = commands.recv() {
        match command {
            Command::Submit(step) => {
                let ticket = backend.submit(&step.lend());
                let ticket =
                    ticket.map_err(|fault| format!("rank {rank} failed at step {}: {fault}", step.id))?;
                in_flight.push_back((ticket, step));
            }
            Command::Wait => {
                let output = wait_oldest(rank, backend, in_flight)?;
                let _ = replies.send(Reply { rank, outcome: Ok(output) });
            }
        }
    }
    while !in_flight.is_empty() {
        wait_oldest(rank, backend, in_flight)?;
    }
    Ok(())
}

/// The step leaves the queue only when it is done: the backend may read it until then.
fn wait_oldest(
    rank: usize,
    backend: &mut dyn Backend,
    in_flight: &mut VecDeque<(Ticket, Arc<Step>)>,
) -> Result<Output, String> {
    let (ticket, step) = in_flight.front().expect("a step is waited for once, after it was submitted");
    let mut output = if rank == 0 { step.output() } else { Output::default() };
    let done = backend.wait(*ticket, &mut output);
    done.map_err(|fault| format!("rank {rank} failed at step {}: {fault}", step.id))?;
    in_flight.pop_front();
    Ok(output)
}
