//! An input that never ends is a fault as well: it is written down, and the process ends, because the thread that
//! hangs cannot be stopped.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::corpus;

/// Longest time for one input; compiling a grammar may take ten seconds of it.
const LONGEST: Duration = Duration::from_secs(60);

/// The input that is being tried, and since when.
type Trying = Option<(Instant, Vec<u8>)>;

/// Watches the inputs of one run.
pub(crate) struct Watchdog(Arc<Mutex<Trying>>);

impl Watchdog {
    /// Starts the thread that watches; it ends with the run.
    pub(crate) fn start(target: &'static str) -> Self {
        let trying: Arc<Mutex<Trying>> = Arc::default();
        let watched = Arc::downgrade(&trying);
        std::thread::spawn(move || {
            while let Some(trying) = watched.upgrade() {
                let late = trying
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take_if(|trying| trying.0.elapsed() > LONGEST);
                if let Some((_, input)) = late {
                    give_up(target, &input);
                }
                drop(trying);
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        Watchdog(trying)
    }

    /// Says what is being tried; `None` when nothing is.
    pub(crate) fn trying(&self, input: Option<&[u8]>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            input.map(|input| (Instant::now(), input.to_vec()));
    }
}

fn give_up(target: &str, input: &[u8]) {
    match corpus::save(target, input) {
        Ok(path) => eprintln!("{target}: an input takes more than {LONGEST:?}: {}", path.display()),
        Err(error) => {
            eprintln!("{target}: an input takes more than {LONGEST:?} and cannot be kept: {error:#}")
        }
    }
    std::process::exit(1);
}
