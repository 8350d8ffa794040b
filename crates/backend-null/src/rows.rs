//! The table rows: settings and page tables, as the deltas of the steps make them.

use m3_abi::types::{NONE, PageAppend, RowBind, TokenBias};
use m3_abi::{Error, Result, Step};

use crate::distribution::Draw;
use crate::pages::{Pages, Reader};

/// A sequence known to the device.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub bind: RowBind,
    pub biases: Vec<TokenBias>,
    pub table: Vec<u32>,
    pub reader: Reader,
    /// Where the next part must start; `None` until the first part, which may follow a cached prefix.
    pub computed: Option<u32>,
    /// Positions of the last part that may be taken back (a verify that was not accepted).
    pub may_rewind: u32,
    pub last_sampled: Option<u32>,
    /// Output index that follows the last sampled position; `None` before one, or when it cannot be told.
    pub next_output: Option<u32>,
}

impl Row {
    pub(crate) fn draw(&self) -> Draw {
        let RowBind { seed, temperature, top_k, top_p, min_p, .. } = self.bind;
        Draw { seed, temperature, top_k, top_p, min_p }
    }
}

/// What a row or a page table may not exceed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub max_rows: u32,
    pub max_step_tokens: u32,
    pub max_context: u32,
    pub page_tokens: u32,
    pub max_logprobs: u32,
    pub vocab: u32,
}

#[derive(Debug)]
pub(crate) struct Rows {
    rows: Vec<Option<Row>>,
}

fn fatal<T>(sentence: String) -> Result<T> {
    Err(Error::Fatal(sentence))
}

/// `slice[offset..][..count]`, or Fatal with the array's name.
pub(crate) fn part<'a, T>(slice: &'a [T], offset: u32, count: usize, what: &str) -> Result<&'a [T]> {
    let offset = offset as usize;
    match offset.checked_add(count).and_then(|end| slice.get(offset..end)) {
        Some(part) => Ok(part),
        None => fatal(format!("{what} {offset}..+{count} is outside the {} that the step has", slice.len())),
    }
}

impl Rows {
    pub(crate) fn new(max_rows: u32) -> Self {
        Rows { rows: vec![None; max_rows as usize] }
    }

    pub(crate) fn bound(&mut self, row: u32, doing: &str) -> Result<&mut Row> {
        let count = self.rows.len();
        match self.rows.get_mut(row as usize) {
            Some(Some(bound)) => Ok(bound),
            Some(None) => fatal(format!("{doing} row {row}, which is not bound")),
            None => fatal(format!("{doing} row {row}; there are {count} rows")),
        }
    }

    /// Releases, binds and new pages of a step, in this order.
    pub(crate) fn apply(&mut self, step: &Step<'_>, limits: &Limits, pages: &mut Pages) -> Result<()> {
        for row in step.releases {
            let table = std::mem::take(&mut self.bound(*row, "release of")?.table);
            for page in table {
                pages.let_go(page)?;
            }
            self.rows[*row as usize] = None;
        }
        for bind in step.binds {
            self.bind(bind, step, limits)?;
        }
        for append in step.pages {
            self.append(append, step, limits, pages)?;
        }
        Ok(())
    }

    fn bind(&mut self, bind: &RowBind, step: &Step<'_>, limits: &Limits) -> Result<()> {
        let row = bind.row;
        match self.rows.get(row as usize) {
            Some(None) => {}
            Some(Some(_)) => return fatal(format!("row {row} is bound again without a release")),
            None => return fatal(format!("bind of row {row}; there are {} rows", limits.max_rows)),
        }
        check_settings(bind, limits)?;
        let known = bind.prompt_len as usize + bind.output_len as usize;
        part(step.history, bind.history_offset, known, "history")?;
        let biases = part(step.biases, bind.bias_offset, bind.num_biases as usize, "biases")?.to_vec();
        if let Some(bias) = biases.iter().find(|bias| bias.token >= limits.vocab || bias.bias.is_nan()) {
            let TokenBias { token, bias } = bias;
            return fatal(format!(
                "row {row} has bias {bias} for token {token}; the vocabulary has {}",
                limits.vocab
            ));
        }
        self.rows[row as usize] = Some(Row {
            bind: *bind,
            biases,
            table: Vec::new(),
            reader: Reader::default(),
            computed: None,
            may_rewind: 0,
            last_sampled: None,
            next_output: None,
        });
        Ok(())
    }

    fn append(
        &mut self,
        append: &PageAppend,
        step: &Step<'_>,
        limits: &Limits,
        pages: &mut Pages,
    ) -> Result<()> {
        let ids = part(step.page_ids, append.offset, append.count as usize, "page_ids")?;
        let row = append.row;
        let table = &mut self.bound(row, "pages for")?.table;
        if append.first as usize != table.len() {
            let (first, has) = (append.first, table.len());
            return fatal(format!("row {row} gets page entry {first} but has {has} entries"));
        }
        for page in ids {
            if table.contains(page) {
                return fatal(format!("row {row} gets page {page} twice"));
            }
            pages.hold(*page)?;
            table.push(*page);
        }
        let most = limits.max_context.div_ceil(limits.page_tokens) as usize;
        if table.len() > most {
            return fatal(format!("row {row} has {} pages; the longest context has {most}", table.len()));
        }
        Ok(())
    }
}

fn check_settings(bind: &RowBind, limits: &Limits) -> Result<()> {
    let row = bind.row;
    if bind.num_logprobs != NONE && bind.num_logprobs > limits.max_logprobs {
        let (asked, most) = (bind.num_logprobs, limits.max_logprobs);
        return fatal(format!("row {row} asks for {asked} log-probabilities; opened with {most}"));
    }
    let within = |value: f32, least: f32, most: f32| (least..=most).contains(&value);
    let settings = [
        ("temperature", bind.temperature, within(bind.temperature, 0.0, f32::MAX)),
        ("top_p", bind.top_p, bind.top_p > 0.0 && bind.top_p <= 1.0),
        ("min_p", bind.min_p, within(bind.min_p, 0.0, 1.0)),
        (
            "repetition_penalty",
            bind.repetition_penalty,
            within(bind.repetition_penalty, f32::MIN_POSITIVE, f32::MAX),
        ),
        ("presence_penalty", bind.presence_penalty, bind.presence_penalty.is_finite()),
        ("frequency_penalty", bind.frequency_penalty, bind.frequency_penalty.is_finite()),
    ];
    match settings.iter().find(|setting| !setting.2) {
        Some((name, value, _)) => fatal(format!("row {row} has {name} {value}")),
        None => Ok(()),
    }
}
