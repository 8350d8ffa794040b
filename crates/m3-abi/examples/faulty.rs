//! A plugin whose every call can be made to panic or to answer Fatal, named by the config: `submit`, `fatal submit`, …
//! Only the tests of the handshake load it.

use m3_abi::types::{Ready, WarmShape};
use m3_abi::{
    Backend, Driver, Error, OpenRequest, Output, ProbeReport, ProbeRequest, Result, Step, TensorView, Ticket,
};

m3_abi::export_backend!(FaultyDriver);

struct FaultyDriver;

fn act(script: &str, entry: &str) -> Result<()> {
    match script.strip_prefix("fatal ") {
        Some(fatal) if fatal == entry => Err(Error::Fatal(format!("{entry} failed as asked"))),
        None if script == entry => panic!("{entry} as asked"),
        _ => Ok(()),
    }
}

fn text(config: &[u8]) -> String {
    String::from_utf8_lossy(config).into_owned()
}

impl Driver for FaultyDriver {
    fn name(&self) -> &str {
        "faulty"
    }
    fn version(&self) -> &str {
        "1.0"
    }
    fn probe(&self, request: &ProbeRequest) -> Result<ProbeReport> {
        act(&text(&request.config), "probe")?;
        Ok(ProbeReport { score: 2, num_devices: 1, ..ProbeReport::default() })
    }
    fn comm_id(&self) -> Result<Vec<u8>> {
        Ok((0..10_000_u32).map(|byte| byte as u8).collect())
    }
    fn open(&self, request: &OpenRequest) -> Result<Box<dyn Backend>> {
        let script = text(&request.config);
        act(&script, "open")?;
        m3_abi::log::say(m3_abi::log::INFO, "opened by the faulty backend");
        Ok(Box::new(Faulty { script, tickets: 0 }))
    }
}

struct Faulty {
    script: String,
    tickets: u64,
}

impl Backend for Faulty {
    fn load(&mut self, _tensor: &TensorView<'_>) -> Result<()> {
        act(&self.script, "load")
    }
    fn ready(&mut self) -> Result<Ready> {
        act(&self.script, "ready")?;
        Ok(Ready { page_bytes: 1, max_pages: 1, ..Ready::default() })
    }
    fn reserve(&mut self, _num_pages: u64) -> Result<()> {
        act(&self.script, "reserve")
    }
    fn warm(&mut self, _shapes: &[WarmShape]) -> Result<()> {
        act(&self.script, "warm")
    }
    fn submit(&mut self, _step: &Step<'_>) -> Result<Ticket> {
        act(&self.script, "submit")?;
        self.tickets += 1;
        Ok(Ticket(self.tickets))
    }
    fn wait(&mut self, _ticket: Ticket, output: &mut Output) -> Result<()> {
        act(&self.script, "wait")?;
        if self.script == "slow" {
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        if self.script == "long output" {
            output.tokens.push(1);
        }
        Ok(())
    }
    fn done(&mut self) -> Result<Ticket> {
        act(&self.script, "done")?;
        Ok(Ticket(self.tickets))
    }
    fn read_pages(&mut self, pages: &[u32], bytes: &mut Vec<u8>) -> Result<()> {
        bytes.clear();
        bytes.extend(pages.iter().flat_map(|page| [*page as u8; 4]));
        Ok(())
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        assert!(self.script != "close", "close as asked");
    }
}
