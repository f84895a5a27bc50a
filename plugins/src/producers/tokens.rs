//! Producer `tokens`: the prompt's token ids, or why there are none.

use std::fmt;
use std::sync::Arc;

use kvasir_core::{
    BoxFuture, Candidates, CycleState, DataProducer, InferenceRequest, Needs, Plugin, ProduceError,
    TokenSlot, Tokenizer,
};

/// Asks the tokenizer chain. With the ids the prompt's length is exact; ids of a prefix only (up to an image, for
/// example) leave the estimate where that is larger.
#[derive(Clone)]
pub struct Tokens {
    tokenizer: Arc<dyn Tokenizer>,
}

impl Tokens {
    /// The name in metrics.
    pub const NAME: &'static str = "tokens";

    /// From a tokenizer chain.
    pub fn new(tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self { tokenizer }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Plugin for Tokens {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl DataProducer for Tokens {
    fn provides(&self) -> Needs {
        Needs::TOKENS
    }

    fn produce<'a>(
        &'a self,
        request: &'a InferenceRequest,
        _: &'a Candidates,
        cycle: &'a mut CycleState,
    ) -> BoxFuture<'a, Result<(), ProduceError>> {
        Box::pin(async move {
            match self.tokenizer.encode(request).await {
                Ok(tokenized) => {
                    let counted = u32::try_from(tokenized.ids.len()).unwrap_or(u32::MAX);
                    cycle.prompt_tokens =
                        if tokenized.whole { counted } else { counted.max(cycle.prompt_tokens) };
                    cycle.tokens = TokenSlot::Ready(tokenized);
                    Ok(())
                }
                Err(error) => {
                    let reason = error.label();
                    cycle.tokens = TokenSlot::Failed(error);
                    Err(ProduceError { producer: Self::NAME, reason })
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{pool_of, request};
    use kvasir_core::{TokenSource, TokenizeError, Tokenized};
    use std::time::Duration;

    struct Answers(Result<Tokenized, TokenizeError>);

    impl Tokenizer for Answers {
        fn encode<'a>(&'a self, _: &'a InferenceRequest) -> BoxFuture<'a, Result<Tokenized, TokenizeError>> {
            let answer = self.0.clone();
            Box::pin(async move { answer })
        }
    }

    fn ids(count: u32, whole: bool) -> Tokenized {
        Tokenized { ids: (0..count).collect(), source: TokenSource::Local, took: Duration::ZERO, whole }
    }

    async fn produce(
        answer: Result<Tokenized, TokenizeError>,
        body: usize,
    ) -> (CycleState, Result<(), ProduceError>) {
        let mut request = request();
        request.body = vec![b' '; body].into();
        let mut cycle = CycleState::new(&request);
        let outcome =
            Tokens::new(Arc::new(Answers(answer))).produce(&request, &pool_of([]), &mut cycle).await;
        (cycle, outcome)
    }

    #[tokio::test]
    async fn ids_make_the_length_exact_unless_they_are_a_prefix_only() {
        for (count, whole, body, length) in
            [(7, true, 4000, 7), (7, false, 4000, 1000), (70, false, 40, 70), (70, true, 40, 70)]
        {
            let (cycle, outcome) = produce(Ok(ids(count, whole)), body).await;
            assert_eq!((outcome, cycle.prompt_tokens), (Ok(()), length), "{count} {whole} {body}");
            assert!(matches!(cycle.tokens, TokenSlot::Ready(tokens) if tokens.ids.len() == count as usize));
        }
    }

    #[tokio::test]
    async fn a_failure_keeps_its_reason_and_the_estimate() {
        let (cycle, outcome) = produce(Err(TokenizeError::QueueFull), 400).await;
        assert_eq!(outcome, Err(ProduceError { producer: "tokens", reason: "queue_full" }));
        assert!(matches!(cycle.tokens, TokenSlot::Failed(TokenizeError::QueueFull)));
        assert_eq!(cycle.prompt_tokens, 100);
    }
}
