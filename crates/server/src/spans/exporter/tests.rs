//! The exporter before a collector that does as it is told, in time that passes by itself.

use super::*;
use meerkat_fault::Mutex;
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// Answers as listed, then takes everything.
#[derive(Clone, Default)]
struct Scripted {
    answers: Arc<Mutex<VecDeque<Result<u64, Code>>>>,
    /// How many spans each request had.
    asked: Arc<Mutex<Vec<usize>>>,
    /// Never answers at all.
    stalls: bool,
}

impl Collector for Scripted {
    async fn export(&mut self, spans: otlp::ExportTraceServiceRequest) -> Result<u64, NotTaken> {
        let count = spans.resource_spans[0].scope_spans[0].spans.len();
        self.asked.lock().push(count);
        if self.stalls {
            std::future::pending::<()>().await;
        }
        let answer = self.answers.lock().pop_front().unwrap_or(Ok(0));
        answer.map_err(|code| NotTaken::new(code, "scripted"))
    }
}

struct Stage {
    queue: mpsc::Sender<otlp::Span>,
    counters: Arc<SpanCounters>,
    asked: Arc<Mutex<Vec<usize>>>,
    stop: oneshot::Sender<()>,
    running: tokio::task::JoinHandle<()>,
}

impl Stage {
    fn new(stalls: bool, answers: &[Result<u64, Code>]) -> Stage {
        let (queue, spans) = mpsc::channel(4 * BATCH_SPANS);
        let answers = Arc::new(Mutex::new(answers.iter().copied().collect()));
        let collector = Scripted { answers, stalls, ..Scripted::default() };
        let (asked, counters) = (collector.asked.clone(), Arc::new(SpanCounters::default()));
        let exporter = Exporter::new(spans, collector, otlp::Resource::default(), counters.clone());
        let (stop, stopped) = oneshot::channel();
        Stage { queue, counters, asked, stop, running: tokio::spawn(exporter.run(stopped)) }
    }

    fn send(&self, count: usize) {
        for _ in 0..count {
            self.queue.try_send(otlp::Span::default()).expect("room");
        }
    }

    /// Lets time pass until nothing more happens by itself.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(3_600)).await;
    }

    async fn stop(self) -> (Duration, Arc<SpanCounters>) {
        let began = Instant::now();
        drop(self.stop);
        self.running.await.expect("no panic");
        (began.elapsed(), self.counters)
    }
}

fn read(counters: &SpanCounters) -> (u64, u64) {
    (counters.exported.load(Ordering::Relaxed), counters.failed.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn spans_go_in_batches_and_none_waits_for_a_full_one() {
    let stage = Stage::new(false, &[]);
    stage.send(BATCH_SPANS + 3);
    stage.settle().await;
    assert_eq!(*stage.asked.lock(), [BATCH_SPANS, 3]);
    stage.send(1);
    stage.settle().await;
    assert_eq!(read(&stage.counters), (BATCH_SPANS as u64 + 4, 0));
}

#[tokio::test(start_paused = true)]
async fn what_passes_is_waited_out_and_the_same_spans_are_offered_again() {
    let stage = Stage::new(false, &[Err(Code::Unavailable), Err(Code::DeadlineExceeded), Ok(0)]);
    stage.send(2);
    stage.settle().await;
    assert_eq!((stage.asked.lock().as_slice(), read(&stage.counters)), (&[2, 2, 2][..], (2, 0)));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_pass_is_given_up_and_counted_and_the_next_goes_on() {
    let stage = Stage::new(false, &[Err(Code::InvalidArgument)]);
    stage.send(2);
    stage.settle().await;
    assert_eq!(read(&stage.counters), (0, 2));
    stage.send(1);
    stage.settle().await;
    assert_eq!((stage.asked.lock().as_slice(), read(&stage.counters)), (&[2, 1][..], (1, 2)));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_stays_away_is_given_up_for_a_batch_after_a_while() {
    let stage = Stage::new(false, &[Err(Code::Unavailable); TRIES_MAX as usize]);
    let began = Instant::now();
    stage.send(1);
    while read(&stage.counters).1 == 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let took = began.elapsed();
    assert!((Duration::from_secs(30)..Duration::from_secs(40)).contains(&took), "{took:?}");
    assert_eq!(stage.asked.lock().len(), TRIES_MAX as usize);
}

#[tokio::test(start_paused = true)]
async fn what_a_collector_rejects_is_counted_as_failed() {
    let stage = Stage::new(false, &[Ok(2), Ok(u64::MAX)]);
    stage.send(5);
    stage.settle().await;
    assert_eq!(read(&stage.counters), (3, 2));
    stage.send(5);
    stage.settle().await;
    assert_eq!(read(&stage.counters), (3, 7));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_what_waits_is_sent_at_once() {
    let stage = Stage::new(false, &[]);
    stage.send(BATCH_SPANS + 1);
    let (took, counters) = stage.stop().await;
    assert_eq!((read(&counters), took), ((BATCH_SPANS as u64 + 1, 0), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_a_batch_that_was_waiting_to_be_offered_again_is() {
    let stage = Stage::new(false, &[Err(Code::Unavailable)]);
    stage.send(3);
    while stage.asked.lock().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (_, counters) = stage.stop().await;
    assert_eq!(read(&counters), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_never_answers_holds_the_end_up_only_so_long() {
    let stage = Stage::new(true, &[]);
    stage.send(BATCH_SPANS + 7);
    let (took, counters) = stage.stop().await;
    assert_eq!((read(&counters), took), ((0, BATCH_SPANS as u64 + 7), FLUSH_WITHIN));
}

#[test]
fn pauses_double_and_end() {
    let pauses: Vec<Option<u64>> = (1..=TRIES_MAX)
        .map(|tries| pause_before_next(tries, Code::Unavailable).map(|pause| pause.as_secs()))
        .collect();
    assert_eq!(pauses, [Some(1), Some(2), Some(4), Some(8), Some(16), None]);
    assert_eq!(pause_before_next(1, Code::PermissionDenied), None);
}
