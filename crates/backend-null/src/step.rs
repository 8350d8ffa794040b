//! One step: every rule of [`m3_abi::types::StepArgs`] is checked, then each position is written, read back and answered.

use std::collections::HashMap;

use m3_abi::types::{FAULT_EMPTY_MASK, FAULT_NAN, MediaSpan, NONE, SEQ_CHAINED, Seq};
use m3_abi::{Error, Result, Step};

use crate::distribution::{drawn_rank, favourite, log_probability, mix, rank, token_at};
use crate::options::Options;
use crate::outputs::Slot;
use crate::pages::Pages;
use crate::rows::{Limits, Row, Rows, part};

/// An encoded medium: what stands for its content, and its rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded {
    pub content: u64,
    pub num_rows: u32,
}

/// What a step changes.
#[derive(Debug)]
pub(crate) struct Device {
    pub rows: Rows,
    pub pages: Pages,
    pub media: HashMap<u64, Encoded>,
    pub limits: Limits,
    pub options: Options,
}

fn fatal<T>(sentence: String) -> Result<T> {
    Err(Error::Fatal(sentence))
}

impl Device {
    /// Applies a step; gives its output slots. Any broken rule is Fatal with a sentence.
    pub(crate) fn step(&mut self, step: &Step<'_>) -> Result<Vec<Slot>> {
        self.rows.apply(step, &self.limits, &mut self.pages)?;
        self.check_seqs(step)?;
        self.check_media(step)?;
        let mut slots = Vec::new();
        for seq in step.seqs {
            self.sequence(seq, step, &mut slots)?;
        }
        Ok(slots)
    }

    fn check_seqs(&mut self, step: &Step<'_>) -> Result<()> {
        let mut rows: Vec<u32> = step.seqs.iter().map(|seq| seq.row).collect();
        rows.sort_unstable();
        if let Some(pair) = rows.windows(2).find(|pair| pair[0] == pair[1]) {
            return fatal(format!("row {} has two parts in one step", pair[0]));
        }
        let total: u64 = step.seqs.iter().map(|seq| u64::from(seq.num_tokens)).sum();
        let most = self.limits.max_step_tokens;
        if total > u64::from(most) {
            return fatal(format!("the step has {total} tokens; opened with {most}"));
        }
        let mut outputs: Vec<(u64, u64)> = step
            .seqs
            .iter()
            .filter(|seq| seq.num_logits > 0)
            .map(|seq| (u64::from(seq.output_offset), u64::from(seq.num_logits)))
            .collect();
        outputs.sort_unstable();
        if let Some(pair) = outputs.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            return fatal(format!("output slot {} belongs to two parts", pair[1].0));
        }
        step.seqs.iter().try_for_each(|seq| self.check_seq(seq, step))
    }

    fn check_seq(&mut self, seq: &Seq, step: &Step<'_>) -> Result<()> {
        let Limits { max_context, vocab, .. } = self.limits;
        let (row, first, len) = (seq.row, seq.first_position, seq.num_tokens);
        let bound = self.rows.bound(row, "a part for")?;
        if len == 0 || seq.num_logits > len {
            return fatal(format!("row {row} has {len} tokens and wants {} logits", seq.num_logits));
        }
        if u64::from(first) + u64::from(len) > u64::from(max_context) {
            return fatal(format!(
                "row {row} reaches position {first}+{len}; the longest context is {max_context}"
            ));
        }
        if let Some(computed) = bound.computed
            && (first > computed || first < computed - bound.may_rewind)
        {
            return fatal(format!("row {row} continues at position {first}; {computed} is next"));
        }
        if seq.flags & !SEQ_CHAINED != 0 {
            return fatal(format!("row {row} has unknown flags {:#x}", seq.flags));
        }
        if seq.flags & SEQ_CHAINED != 0 {
            if len != 1 || bound.last_sampled.is_none() || bound.computed != Some(first) {
                return fatal(format!("row {row} is chained to a token that it has not sampled"));
            }
        } else {
            let tokens = part(step.tokens, seq.token_offset, len as usize, "tokens")?;
            if let Some(token) = tokens.iter().find(|token| **token >= vocab) {
                return fatal(format!("row {row} has token {token}; the vocabulary has {vocab}"));
            }
        }
        check_output_index(bound, seq)
    }

    fn check_media(&mut self, step: &Step<'_>) -> Result<()> {
        for span in step.media {
            let MediaSpan { handle, row, first_position, len, first_row } = *span;
            let Some(encoded) = self.media.get(&handle) else {
                return fatal(format!("row {row} uses medium {handle}, which is not encoded"));
            };
            if u64::from(first_row) + u64::from(len) > u64::from(encoded.num_rows) {
                let has = encoded.num_rows;
                return fatal(format!(
                    "row {row} uses rows {first_row}+{len} of medium {handle}, which has {has}"
                ));
            }
            let inside = |seq: &&Seq| {
                let end = u64::from(seq.first_position) + u64::from(seq.num_tokens);
                seq.row == row
                    && first_position >= seq.first_position
                    && u64::from(first_position) + u64::from(len) <= end
            };
            if !step.seqs.iter().any(|seq| inside(&seq)) {
                return fatal(format!(
                    "medium {handle} at {first_position}+{len} is outside row {row}'s part"
                ));
            }
        }
        Ok(())
    }

    fn sequence(&mut self, seq: &Seq, step: &Step<'_>, slots: &mut Vec<Slot>) -> Result<()> {
        let row = self.rows.bound(seq.row, "a part for")?;
        let chained = [row.last_sampled.unwrap_or(NONE)];
        let tokens = match seq.flags & SEQ_CHAINED {
            0 => part(step.tokens, seq.token_offset, seq.num_tokens as usize, "tokens")?,
            _ => &chained,
        };
        let first = seq.first_position as usize;
        if first > row.table.len() * self.limits.page_tokens as usize {
            let pages = row.table.len();
            return fatal(format!("row {} starts at position {first} with {pages} pages", seq.row));
        }
        let mut before = self.pages.read(seq.row, &row.table, first, &mut row.reader)?;
        let mut answers = Answers::new(seq, step, &self.options, &self.limits)?;
        let first_logit = tokens.len() - seq.num_logits as usize;
        for (index, token) in tokens.iter().enumerate() {
            let position = first + index;
            let input = input(*token, seq.row, position, step, &self.media);
            before = self.pages.write(seq.row, &row.table, position, before, input)?;
            if index >= first_logit {
                slots.push(answers.answer(row, &self.pages, (position, before))?);
            }
        }
        row.computed = Some((first + tokens.len()) as u32);
        row.may_rewind = seq.num_logits.saturating_sub(1);
        if seq.num_logits > 0 {
            row.last_sampled = answers.last;
            row.next_output = (answers.sampled > 0).then_some(seq.output_index + answers.sampled);
        }
        Ok(())
    }
}

/// A row's outputs are counted without gaps, or its randomness would depend on how it was scheduled.
fn check_output_index(row: &Row, seq: &Seq) -> Result<()> {
    let (Some(next), Some(computed)) = (row.next_output, row.computed) else { return Ok(()) };
    let rewound = computed - seq.first_position;
    if seq.num_logits > 0 && seq.target_offset == NONE && seq.output_index != next.saturating_sub(rewound) {
        let (row, index, next) = (seq.row, seq.output_index, next.saturating_sub(rewound));
        return fatal(format!("row {row} samples output {index}; {next} is next"));
    }
    Ok(())
}

/// What stands for the input at a position: its token, or the token and the image row that replaces its embedding.
fn input(token: u32, row: u32, position: usize, step: &Step<'_>, media: &HashMap<u64, Encoded>) -> u64 {
    let covering = step.media.iter().find(|span| {
        let first = span.first_position as usize;
        span.row == row && (first..first + span.len as usize).contains(&position)
    });
    let Some(span) = covering else { return u64::from(token) };
    let image_row = span.first_row + (position as u32 - span.first_position);
    let content = media.get(&span.handle).map_or(0, |encoded| encoded.content);
    // The top bit is cleared so that no input is the mark of an unwritten slot.
    mix(content ^ mix(u64::from(image_row) << 32 | u64::from(token))) >> 1
}

/// Answers the logits positions of one part, in order.
struct Answers<'a> {
    seq: &'a Seq,
    targets: Option<&'a [u32]>,
    masks: Option<&'a [u32]>,
    options: &'a Options,
    limits: &'a Limits,
    answered: u32,
    sampled: u32,
    last: Option<u32>,
}

impl<'a> Answers<'a> {
    fn new(seq: &'a Seq, step: &Step<'a>, options: &'a Options, limits: &'a Limits) -> Result<Self> {
        let count = seq.num_logits as usize;
        let targets = match seq.target_offset {
            NONE => None,
            offset => Some(part(step.targets, offset, count, "targets")?),
        };
        let scored = |target: &&u32| **target != NONE;
        if let Some(token) =
            targets.into_iter().flatten().filter(scored).find(|target| **target >= limits.vocab)
        {
            return fatal(format!("row {} has target {token}; the vocabulary has {}", seq.row, limits.vocab));
        }
        let sampled = count - targets.map_or(0, |targets| targets.iter().filter(scored).count());
        let masks = match seq.mask_offset {
            NONE => None,
            offset => Some(part(step.masks, offset, sampled * limits.vocab.div_ceil(32) as usize, "masks")?),
        };
        Ok(Answers { seq, targets, masks, options, limits, answered: 0, sampled: 0, last: None })
    }

    /// `at` is the position whose logits they are, and the chain value after it.
    fn answer(&mut self, row: &Row, pages: &Pages, at: (usize, u64)) -> Result<Slot> {
        let index = self.answered;
        self.answered += 1;
        let target = self.targets.map_or(NONE, |targets| targets[index as usize]);
        let output_index = self.seq.output_index + self.sampled;
        let favourite = match self.options.echo {
            true => self.echoed(row, pages, (at.0, output_index)),
            false => self.favourite(output_index, at.1),
        };
        let mut slot = Slot {
            index: self.seq.output_offset + index,
            token: target,
            favourite,
            faults: 0,
            num_logprobs: (row.bind.num_logprobs != NONE).then_some(row.bind.num_logprobs),
        };
        if target == NONE {
            let chosen = self.sample(row, favourite, output_index);
            self.sampled += 1;
            slot.token = chosen.unwrap_or(NONE);
            slot.faults |= if chosen.is_none() { FAULT_EMPTY_MASK } else { 0 };
            self.last = chosen;
        } else {
            slot.num_logprobs = Some(slot.num_logprobs.unwrap_or(0));
        }
        if self.options.nan_row == Some(self.seq.row) {
            slot.faults |= FAULT_NAN;
            slot.token = NONE;
        }
        Ok(slot)
    }

    /// The prompt's token of this index as the row's pages hold it. An image's place has none, and ends the echo.
    fn echoed(&self, row: &Row, pages: &Pages, (position, output_index): (usize, u32)) -> u32 {
        // Output i is sampled at position prompt_len - 1 + i.
        let prompt_len = (position + 1).saturating_sub(output_index as usize);
        let tokens = (0..prompt_len)
            .filter_map(|at| pages.input(&row.table, at))
            .map(|input| u32::try_from(input).ok().filter(|token| *token < self.limits.vocab));
        let mut kept =
            tokens.filter(|token| token.is_none_or(|token| !self.options.echo_without.contains(&token)));
        kept.nth(output_index as usize).flatten().or(self.options.eos).unwrap_or(0)
    }

    /// The script's token, or the hash of everything before.
    fn favourite(&self, output_index: u32, end: u64) -> u32 {
        let Options { script, eos, length, vocab, .. } = self.options;
        let scripted = script.len() as u32;
        match (eos, scripted) {
            (Some(eos), 1..) if output_index >= scripted => *eos,
            (_, 1..) => script[(output_index % scripted) as usize],
            (Some(eos), 0) if length.is_some_and(|length| output_index >= length) => *eos,
            (_, 0) => favourite(end, *vocab),
        }
    }

    /// The drawn token, moved by the row's biases and to the next rank that the mask allows; `None` when it allows none.
    fn sample(&self, row: &Row, favourite: u32, output_index: u32) -> Option<u32> {
        let vocab = self.limits.vocab;
        let words = vocab.div_ceil(32) as usize;
        let mask = self.masks.map(|masks| &masks[self.sampled as usize * words..][..words]);
        let allowed = |token: u32| mask.is_none_or(|mask| mask[token as usize / 32] >> (token % 32) & 1 == 1);
        let biased = |token: u32| row.biases.iter().any(|bias| bias.token == token);
        let scripted = !self.options.script.is_empty() || self.options.length.is_some() || self.options.echo;
        let from = if scripted { 0 } else { drawn_rank(&row.draw(), output_index, vocab) };
        let plain = (0..vocab)
            .map(|step| (from + step) % vocab)
            .map(|place| token_at(place, favourite, vocab))
            .find(|token| allowed(*token) && !biased(*token))
            .map(|token| (log_probability(rank(token, favourite, vocab), vocab), token));
        let moved =
            row.biases.iter().filter(|bias| allowed(bias.token)).map(|bias| {
                (log_probability(rank(bias.token, favourite, vocab), vocab) + bias.bias, bias.token)
            });
        plain
            .into_iter()
            .chain(moved)
            .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))
            .map(|best| best.1)
    }
}
