//! When a reader is woken, and that nothing is lost on the way.

use m3_core::event::SampledToken;
use tokio::time::{sleep, timeout};

use super::*;

const MARKER: u32 = 1000;
const GATHER: Patience = Patience::Gather(Duration::from_millis(60));

fn tokens(token: u32) -> RequestEvent {
    RequestEvent::Tokens(vec![SampledToken { token, score: None }])
}

fn finish() -> Finish {
    Finish { reason: FinishReason::Length, usage: Usage::default(), timings: Timings::default() }
}

fn reader(limit: usize, answers: usize) -> (Reader, Vec<QueueSink>) {
    let pacer = Arc::new(Pacer::default());
    pacer.start();
    let reader = Reader::new(&pacer, answers, limit, MARKER);
    let sinks = (0..answers).map(|index| reader.sink(index)).collect();
    (reader, sinks)
}

async fn next(reader: &mut Reader, patience: Patience, wake_at: Option<Instant>) -> Option<Sent> {
    std::future::poll_fn(|context| reader.poll_next(context, patience, wake_at)).await
}

/// How long a waiting reader waits on behind `send`; `None` when nothing comes within 400 ms.
async fn woken_after(patience: Patience, send: impl FnOnce(&mut QueueSink)) -> Option<Duration> {
    let (mut reader, mut sinks) = reader(100, 1);
    let waiting = tokio::spawn(async move { next(&mut reader, patience, None).await.is_some() });
    while sinks[0].queue.state().reader.is_none() {
        sleep(Duration::from_millis(1)).await;
    }
    let sent = Instant::now();
    send(&mut sinks[0]);
    let woken = timeout(Duration::from_millis(400), waiting).await;
    woken.is_ok_and(|came| came.unwrap()).then(|| sent.elapsed())
}

#[tokio::test]
async fn a_reader_is_woken_for_what_it_waits_for() {
    let one = |sink: &mut QueueSink| sink.send(tokens(1)).unwrap();
    let marker = |sink: &mut QueueSink| sink.send(tokens(MARKER)).unwrap();
    let scores =
        |sink: &mut QueueSink| sink.send(RequestEvent::Prompt { first_position: 1, scores: vec![] }).unwrap();
    let many = |sink: &mut QueueSink| (0..ENOUGH_TOKENS).for_each(|_| sink.send(tokens(1)).unwrap());
    let soon = Duration::from_millis(40);
    assert!(woken_after(Patience::AtOnce, one).await.unwrap() < soon);
    assert!(woken_after(GATHER, one).await.unwrap() >= Duration::from_millis(60));
    assert_eq!(woken_after(Patience::Whole, one).await, None);
    for patience in [GATHER, Patience::Whole] {
        assert!(woken_after(patience, marker).await.unwrap() < soon, "{patience:?} keeps a marker waiting");
        assert!(woken_after(patience, scores).await.unwrap() < soon, "{patience:?} keeps scores waiting");
        assert!(woken_after(patience, many).await.unwrap() < soon, "{patience:?} lets the queue grow");
    }
}

#[tokio::test]
async fn the_end_wakes_at_once_and_comes_behind_the_tokens() {
    let (mut reader, mut sinks) = reader(100, 2);
    let (second, mut first) = (Box::new(sinks.remove(1)), Box::new(sinks.remove(0)));
    let sender = tokio::spawn(async move {
        sleep(Duration::from_millis(20)).await;
        first.send(tokens(1)).unwrap();
        second.finish(finish());
        sleep(Duration::from_millis(20)).await;
        first.send(tokens(2)).unwrap();
        // Dropped without an end, which the engine never does.
    });
    let mut seen = Vec::new();
    while let Some(Sent { index, item, .. }) = next(&mut reader, Patience::Whole, None).await {
        seen.push(match item {
            FeedItem::Event(_) => format!("{index} token"),
            FeedItem::End(Finish { reason: FinishReason::Error(text), .. }) => format!("{index} {text}"),
            FeedItem::End(_) => format!("{index} end"),
        });
    }
    sender.await.unwrap();
    let expected = ["0 token", "1 end", "0 token", "0 the engine dropped the request"];
    assert_eq!(seen, expected);
    assert_eq!(reader.close().count(), 0, "nothing is left to abort");
}

#[tokio::test]
async fn a_time_wakes_again_and_again_without_a_token() {
    let (mut reader, sinks) = reader(100, 1);
    for wait in [10, 1100, 30] {
        let begun = Instant::now();
        let wake_at = begun + Duration::from_millis(wait);
        let woken = std::future::poll_fn(|context| match Instant::now() >= wake_at {
            true => Poll::Ready(()),
            false => reader.poll_next(context, GATHER, Some(wake_at)).map(|_| ()),
        });
        timeout(Duration::from_secs(5), woken).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(wait));
    }
    drop(sinks);
}

#[tokio::test]
async fn each_answer_has_its_own_limit_and_a_reader_that_has_gone_is_told() {
    let (mut reader, mut sinks) = reader(3, 2);
    (0..3).for_each(|_| sinks[0].send(tokens(1)).unwrap());
    assert_eq!(sinks[0].send(tokens(1)), Err(SinkError::Full));
    sinks[1].send(tokens(1)).unwrap();
    assert_eq!(reader.queue.state().overflowed, [true, false]);
    assert!(next(&mut reader, Patience::AtOnce, None).await.is_some());
    sinks[0].send(tokens(1)).unwrap();
    assert_eq!(reader.close().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(sinks[1].send(tokens(1)), Err(SinkError::Closed));
}

#[tokio::test]
async fn alarms_of_readers_that_have_gone_are_forgotten() {
    let pacer = Arc::new(Pacer::default());
    pacer.start();
    let queues: Vec<_> = (0..600)
        .map(|_| {
            let mut reader = Reader::new(&pacer, 1, 8, MARKER);
            let far = Instant::now() + Duration::from_secs(3600);
            let mut context = Context::from_waker(futures_util::task::noop_waker_ref());
            assert!(reader.poll_next(&mut context, GATHER, Some(far)).is_pending());
            reader.close().for_each(drop);
            Arc::downgrade(&reader.queue)
        })
        .collect();
    let mut last = Reader::new(&pacer, 1, 8, MARKER);
    let soon = Instant::now() + Duration::from_millis(10);
    let woken = std::future::poll_fn(|context| match Instant::now() >= soon {
        true => Poll::Ready(()),
        false => last.poll_next(context, GATHER, Some(soon)).map(|_| ()),
    });
    woken.await;
    sleep(Duration::from_millis(50)).await;
    let kept = queues.iter().filter(|queue| queue.strong_count() > 0).count();
    assert!(kept <= 300, "{kept} of 600 queues are kept for an hour");
}
