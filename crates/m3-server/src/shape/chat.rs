//! The chat shape: role once, reasoning and content apart, a call's name before its arguments, usage last.

use m3_core::text::parse::Delta;

use super::{Head, OrError, Shape, Tally, TokenNames};
use crate::error::ApiError;
use crate::generate::{ChoiceEvent, Done, Output, OutputToken};
use crate::openai::chat_response::{
    CallDelta, ChatChoice, ChatChunk, ChatResponse, ChunkChoice, ChunkDelta, FunctionDelta, Logprobs,
};
use crate::openai::generation::Delivery;
use crate::openai::prompt_scores::PromptScores;
use crate::openai::reasoning::ReasoningNames;
use crate::openai::stop_cause::StopCause;
use crate::vision::MediaTokens;

/// State of one chat request's response.
pub struct ChatShape {
    head: Head,
    delivery: Delivery,
    names: Option<TokenNames>,
    reasoning: ReasoningNames,
    /// Given with the first chunk when token ids were asked for.
    prompt_ids: Option<Vec<u32>>,
    tally: Tally,
    answers: Vec<AnswerState>,
    folded: Folded,
    /// The prompt's scores, when they were asked for, and how their tokens are named.
    prompt_scores: Option<(TokenNames, PromptScores)>,
}

/// The whole answers so far, when chunks are folded.
struct Folded {
    choices: Vec<ChatChoice>,
    prompt_ids: Option<Vec<u32>>,
}

/// Tokens whose text is still held back wait here for the next chunk.
#[derive(Clone, Default)]
struct AnswerState {
    begun: bool,
    logprobs: Vec<crate::openai::chat_response::TokenLogprob>,
    ids: Vec<u32>,
}

impl ChatShape {
    /// `names` is present when log-probabilities were asked for.
    pub fn new(
        head: Head,
        delivery: Delivery,
        names: Option<TokenNames>,
        reasoning: ReasoningNames,
        prompt: &[u32],
        n: usize,
    ) -> Self {
        let prompt_ids = delivery.token_ids.then(|| prompt.to_vec());
        let tally = Tally::new(vec![prompt.len() as u32], n);
        let answers = vec![AnswerState::default(); n];
        let folded = Folded { choices: vec![ChatChoice::default(); n], prompt_ids: None };
        ChatShape {
            head,
            delivery,
            names,
            reasoning,
            prompt_ids,
            tally,
            answers,
            folded,
            prompt_scores: None,
        }
    }

    /// Reports how many of the prompt's tokens are media's.
    pub fn with_media(mut self, tokens: MediaTokens) -> Self {
        self.tally.media(tokens);
        self
    }

    /// Gives the prompt's scores with the whole answer.
    pub fn with_prompt_scores(mut self, names: Option<TokenNames>) -> Self {
        self.prompt_scores = names.map(|names| (names, PromptScores::default()));
        self
    }

    fn output(&mut self, index: usize, output: Output) -> Vec<ChatChunk> {
        self.tally.output(index, &output);
        self.note_tokens(index, &output.tokens);
        self.deltas(index, output.deltas)
    }

    fn note_tokens(&mut self, index: usize, tokens: &[OutputToken]) {
        let state = &mut self.answers[index];
        for token in tokens {
            if self.delivery.token_ids {
                state.ids.push(token.sampled.token);
            }
            if let (Some(names), Some(score)) = (&self.names, &token.sampled.score) {
                state.logprobs.push(names.chat(score));
            }
        }
    }

    fn deltas(&mut self, index: usize, deltas: Vec<Delta>) -> Vec<ChatChunk> {
        let wire = deltas.into_iter().filter_map(|delta| self.wire_delta(delta)).collect::<Vec<_>>();
        if wire.is_empty() {
            return Vec::new();
        }
        let mut chunks = self.begin(index);
        chunks.extend(wire.into_iter().map(|delta| self.chunk(index, delta, None)));
        chunks
    }

    /// The role comes alone and once, with the first thing there is to say.
    fn begin(&mut self, index: usize) -> Vec<ChatChunk> {
        if std::mem::replace(&mut self.answers[index].begun, true) {
            return Vec::new();
        }
        let delta =
            ChunkDelta { role: Some("assistant"), content: Some(String::new()), ..ChunkDelta::default() };
        let mut chunk = self.wrap(vec![ChunkChoice { index, delta, ..ChunkChoice::default() }]);
        chunk.prompt_token_ids = self.prompt_ids.take();
        vec![chunk]
    }

    fn wire_delta(&self, delta: Delta) -> Option<ChunkDelta> {
        let call = |index, id, name: Option<String>, arguments| {
            let kind = name.is_some().then_some("function");
            let call = CallDelta { index, id, kind, function: FunctionDelta { name, arguments } };
            Some(ChunkDelta { tool_calls: Some(vec![call]), ..ChunkDelta::default() })
        };
        match delta {
            Delta::Reasoning(text) => self.reasoning.delta(text),
            Delta::Content(text) => Some(ChunkDelta { content: Some(text), ..ChunkDelta::default() }),
            Delta::ToolStart { index, id, name } => call(index, Some(id), Some(name), String::new()),
            Delta::ToolArguments { index, fragment } => call(index, None, None, fragment),
            Delta::ToolEnd { .. } => None,
        }
    }

    fn chunk(&mut self, index: usize, delta: ChunkDelta, finish_reason: Option<&'static str>) -> ChatChunk {
        let state = &mut self.answers[index];
        let content = std::mem::take(&mut state.logprobs);
        let ids = std::mem::take(&mut state.ids);
        let choice = ChunkChoice {
            index,
            delta,
            logprobs: (!content.is_empty()).then_some(Logprobs { content }),
            finish_reason,
            stop_reason: None,
            token_ids: self.delivery.token_ids.then_some(ids),
        };
        self.wrap(vec![choice])
    }

    fn wrap(&self, choices: Vec<ChunkChoice>) -> ChatChunk {
        ChatChunk {
            id: self.head.id.clone(),
            object: "chat.completion.chunk",
            created: self.head.created,
            model: self.head.model.clone(),
            choices,
            usage: self.delivery.continuous_usage.then(|| self.tally.usage()),
            prompt_token_ids: None,
        }
    }

    fn done(&mut self, index: usize, done: Done) -> Vec<ChatChunk> {
        self.tally.done(index, &done);
        let mut chunks = self.deltas(index, done.deltas);
        chunks.extend(self.begin(index));
        let mut last = self.chunk(index, ChunkDelta::default(), Some(done.reason.name()));
        let cause = done.stop.as_ref().and_then(StopCause::of);
        last.choices.iter_mut().for_each(|choice| choice.stop_reason = cause.clone());
        chunks.push(last);
        chunks
    }
}

impl Shape for ChatShape {
    type Chunk = OrError<ChatChunk>;
    type Whole = ChatResponse;

    fn event(&mut self, index: usize, event: ChoiceEvent) -> Result<Vec<Self::Chunk>, ApiError> {
        let chunks = match event {
            ChoiceEvent::Prompt(scores) => {
                // Every answer to the prompt has the same ones.
                if let Some((names, list)) = self.prompt_scores.as_mut().filter(|_| index == 0) {
                    list.add(names, &scores);
                }
                Vec::new()
            }
            ChoiceEvent::Output(output) => self.output(index, output),
            ChoiceEvent::Done(done) => self.done(index, done),
            ChoiceEvent::Failed(error) => return Err(error),
        };
        Ok(chunks.into_iter().map(OrError::Chunk).collect())
    }

    fn close(&mut self) -> Vec<Self::Chunk> {
        let usage = Some(self.tally.usage()).filter(|_| self.delivery.include_usage);
        usage
            .map(|usage| OrError::Chunk(ChatChunk { usage: Some(usage), ..self.wrap(Vec::new()) }))
            .into_iter()
            .collect()
    }

    fn broken(&mut self, error: &ApiError) -> Vec<Self::Chunk> {
        vec![OrError::Error(error.body())]
    }

    fn fold(&mut self, chunk: Self::Chunk) {
        let OrError::Chunk(mut chunk) = chunk else { return };
        if let Some(ids) = chunk.prompt_token_ids.take() {
            self.folded.prompt_ids = Some(ids);
        }
        for choice in chunk.choices {
            self.folded.choices[choice.index].fold(choice);
        }
    }

    fn add_unseen(&mut self, completion_tokens: u32, reasoning_tokens: u32) {
        self.tally.add_unseen(completion_tokens, reasoning_tokens);
    }

    fn whole(self) -> ChatResponse {
        let prompt_logprobs = self.prompt_scores.map(|(_, scores)| scores);
        let usage = self.tally.usage();
        let Head { id, created, model } = self.head;
        let Folded { choices, prompt_ids } = self.folded;
        let object = "chat.completion";
        ChatResponse {
            id,
            object,
            created,
            model,
            choices,
            usage,
            prompt_logprobs,
            prompt_token_ids: prompt_ids,
        }
    }
}
