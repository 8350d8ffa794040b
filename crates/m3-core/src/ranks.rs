//! One thread per rank, each with its backend: the same steps in the same order on every one.
//! Threads park on channels and never spin. A rank that fails or panics speaks for all: the group is dead after that.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use m3_abi::types::MediaSpan;
use m3_abi::{Backend, Media, Output, Ticket};

use crate::cache::media::MediaId;
use crate::contain::contain;
use crate::scheduler::{Encode, Step};

enum Command {
    Submit(Arc<Step>),
    Encode(Arc<Encode>),
    Free(MediaId),
    /// Until the oldest step not yet waited for is done.
    Wait,
}

struct Reply {
    rank: usize,
    /// A fault as a sentence that names the rank.
    outcome: Result<Answer, String>,
}

enum Answer {
    Output(Output),
    /// Device bytes, or why this medium cannot be encoded.
    Encoded(Result<u64, String>),
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
        let mut first = Output::default();
        self.collect(|rank, answer| {
            if let (0, Answer::Output(output)) = (rank, answer) {
                first = output;
            }
        })?;
        Ok(first)
    }

    /// Encodes on every rank, as far as putting it in line. The device's bytes, or the sentence with which a rank
    /// refused, after which no rank holds it; a fault is final.
    pub fn encode(&mut self, encode: &Encode) -> Result<Result<u64, String>, String> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let shared = Arc::new(encode.clone());
        for commands in &self.commands {
            let _ = commands.send(Command::Encode(shared.clone()));
        }
        let mut outcome = Ok(0);
        self.collect(|_, answer| match (answer, &mut outcome) {
            (Answer::Encoded(Ok(bytes)), Ok(most)) => *most = bytes.max(*most),
            (Answer::Encoded(Err(reason)), Ok(_)) => outcome = Err(reason),
            _ => {}
        })?;
        Ok(outcome)
    }

    /// Frees an encoded medium on every rank that has it. No step in flight may use it.
    pub fn free(&mut self, id: MediaId) {
        for commands in &self.commands {
            let _ = commands.send(Command::Free(id));
        }
    }

    /// Lets every rank finish its steps and close; not to be called after a fault, when a rank may hang.
    pub fn close(self) {
        drop(self.commands);
        for thread in self.threads {
            let _ = thread.join();
        }
    }

    /// One answer of each rank; the first fault is remembered.
    fn collect(&mut self, mut take: impl FnMut(usize, Answer)) -> Result<(), String> {
        for _ in 0..self.threads.len() {
            let reply = self.replies.recv().map_err(|_| "every rank has ended without a reason".to_owned());
            let outcome = reply.and_then(|reply| Ok((reply.rank, reply.outcome?)));
            let (rank, answer) = outcome.inspect_err(|fault| self.fault = Some(fault.clone()))?;
            take(rank, answer);
        }
        Ok(())
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
    let mut handles: HashMap<MediaId, u64> = HashMap::new();
    while let Ok(command) = commands.recv() {
        match command {
            Command::Submit(step) => {
                let media = own_handles(&step.media, &handles);
                let ticket = backend.submit(&m3_abi::Step { media: &media, ..step.lend() });
                let ticket =
                    ticket.map_err(|fault| format!("rank {rank} failed at step {}: {fault}", step.id))?;
                in_flight.push_back((ticket, step));
            }
            Command::Wait => {
                let output = wait_oldest(rank, backend, in_flight)?;
                let _ = replies.send(Reply { rank, outcome: Ok(Answer::Output(output)) });
            }
            Command::Encode(encode) => {
                let answer = encode_one(rank, backend, &encode, &mut handles)?;
                let _ = replies.send(Reply { rank, outcome: Ok(Answer::Encoded(answer)) });
            }
            Command::Free(id) => {
                // A rank that refused to encode it has nothing to free.
                if let Some(handle) = handles.remove(&id) {
                    backend
                        .media_free(handle)
                        .map_err(|fault| format!("rank {rank} failed to free medium {}: {fault}", id.0))?;
                }
            }
        }
    }
    while !in_flight.is_empty() {
        wait_oldest(rank, backend, in_flight)?;
    }
    Ok(())
}

/// Handles are each rank's own: nobody promises that ranks name the same medium alike.
fn own_handles(media: &[MediaSpan], handles: &HashMap<MediaId, u64>) -> Vec<MediaSpan> {
    let own = |span: &MediaSpan| {
        let handle = handles.get(&MediaId(span.handle)).expect("steps use encoded media only");
        MediaSpan { handle: *handle, ..*span }
    };
    media.iter().map(own).collect()
}

/// `Ok(Err)` when the backend refuses this medium and can go on.
fn encode_one(
    rank: usize,
    backend: &mut dyn Backend,
    encode: &Encode,
    handles: &mut HashMap<MediaId, u64>,
) -> Result<Result<u64, String>, String> {
    let patches = &encode.patches[encode.values.clone()];
    match backend.encode(patches, encode.row_len, &[encode.grid]) {
        Ok(media) if media.num_rows == encode.num_rows => {
            handles.insert(encode.id, media.handle);
            Ok(Ok(media.bytes))
        }
        Ok(Media { num_rows, .. }) => {
            let (wanted, id) = (encode.num_rows, encode.id.0);
            Err(format!("rank {rank} made {num_rows} rows of medium {id}, whose grid makes {wanted}"))
        }
        Err(m3_abi::Error::Unsupported(reason)) => Ok(Err(format!("the backend refused a medium: {reason}"))),
        Err(m3_abi::Error::Fatal(fault)) => Err(format!("rank {rank} failed to encode a medium: {fault}")),
    }
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
