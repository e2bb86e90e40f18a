//! A session against a server made of frames.

use super::*;

/// A session whose streams are open and have so many leases each, with its own bytes read away.
fn opened(pace: Pace, leases: &[i64], counts: &[usize]) -> Session {
    let streams = counts.iter().scan(0, |start, count| {
        let first = *start;
        *start += count;
        Some(first..*start)
    });
    let mut session = Session::new("m:1".to_owned(), leases.into(), pace, streams);
    let mut settings = Vec::new();
    http2::write_frame(&mut settings, http2::SETTINGS, 0, 0, &[]);
    assert_eq!(session.feed(&settings, 0, &mut Tally::new()), Ok(settings.len()));
    assert!(session.is_opened());
    session.out().clear();
    session
}

fn closed(requests: u64) -> Pace {
    Pace::Closed(Rc::new(Budget::new(requests)))
}

/// The leases that the session asked for since the last time, with their streams.
fn asked(session: &mut Session) -> Vec<(u32, i64)> {
    let bytes = std::mem::take(session.out());
    let mut asked = Vec::new();
    let mut done = 0;
    while let Some((frame, length)) = http2::next_frame(&bytes[done..]).expect("good frames") {
        if frame.kind == http2::DATA {
            let message = next_message(frame.payload, 1 << 10).expect("a message").expect("whole");
            let request = pb::LeaseKeepAliveRequest::decode(message).expect("a request");
            asked.push((frame.stream, request.id));
        }
        done += length;
    }
    asked
}

fn answer(stream: u32, id: i64, ttl: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let response = pb::LeaseKeepAliveResponse { id, ttl, ..Default::default() };
    http2::write_frame(&mut bytes, http2::DATA, 0, stream, &framed(&response.encode_to_vec()));
    bytes
}

#[test]
fn a_closed_loop_asks_again_when_answered_and_goes_round_its_leases() {
    let mut session = opened(closed(100), &[10, 11, 12], &[2, 1]);
    let mut tally = Tally::new();
    session.resume(0);
    assert_eq!(asked(&mut session), [(1, 10), (3, 12)]);
    for (at, next) in [(10, 11), (11, 10), (10, 11)] {
        session.feed(&answer(1, at, 60), 5_000, &mut tally).expect("a good answer");
        assert_eq!(asked(&mut session), [(1, next)]);
    }
    assert_eq!(session.in_flight(), 2);
    assert_eq!(tally.error_count(), 0);
}

#[test]
fn a_budget_ends_the_loop_and_so_does_its_time() {
    let mut session = opened(closed(2), &[10], &[1]);
    session.resume(0);
    let mut tally = Tally::new();
    session.feed(&[answer(1, 10, 60)].concat(), 1, &mut tally).expect("good");
    assert_eq!(asked(&mut session).len(), 2);
    session.feed(&answer(1, 10, 60), 2, &mut tally).expect("good");
    assert_eq!((asked(&mut session).len(), session.in_flight()), (0, 0));
    let budget = Budget::new(9);
    budget.end_at(50);
    assert!(budget.take(49));
    assert!(!budget.take(50));
}

#[test]
fn an_answer_may_come_in_pieces() {
    let mut session = opened(closed(1), &[10], &[1]);
    session.resume(0);
    let response = pb::LeaseKeepAliveResponse { id: 10, ttl: 60, ..Default::default() };
    let message = framed(&response.encode_to_vec());
    let mut tally = Tally::new();
    for piece in message.chunks(3) {
        let mut bytes = Vec::new();
        http2::write_frame(&mut bytes, http2::DATA, 0, 1, piece);
        session.feed(&bytes, 1, &mut tally).expect("good");
    }
    assert_eq!(session.in_flight(), 0);
}

#[test]
fn a_wrong_answer_fails_the_run_and_a_lost_lease_is_counted() {
    let mut session = opened(closed(9), &[10], &[1]);
    session.resume(0);
    let mut tally = Tally::new();
    session.feed(&answer(1, 10, 0), 1, &mut tally).expect("an answer");
    assert_eq!(tally.error_count(), 1);
    assert!(session.feed(&answer(1, 11, 60), 1, &mut tally).is_err(), "another lease than asked for");
    assert!(session.feed(&answer(5, 10, 60), 1, &mut tally).is_err(), "a stream that is not there");
    let mut idle = opened(closed(0), &[10], &[1]);
    assert!(idle.feed(&answer(1, 10, 60), 1, &mut tally).is_err(), "nobody asked");
}

#[test]
fn a_paced_session_renews_each_lease_once_a_round_and_stands_still_when_paused() {
    let mut session = opened(Pace::Round(1_000), &[10, 11, 12, 13], &[4]);
    let mut tally = Tally::new();
    session.resume(0);
    session.tick(700).expect("in time");
    let first = asked(&mut session);
    assert_eq!(first, [(1, 10), (1, 11), (1, 12)]);
    for (stream, lease) in first {
        session.feed(&answer(stream, lease, 60), 700, &mut tally).expect("good");
    }
    session.pause(700);
    session.pause(3_000);
    session.tick(5_000).expect("nothing is due");
    assert!(asked(&mut session).is_empty());
    session.resume(5_700);
    session.tick(5_700).expect("in time");
    assert!(asked(&mut session).is_empty(), "the pause has moved what was due");
    session.tick(5_760).expect("in time");
    assert_eq!(asked(&mut session), [(1, 13)]);
}

#[test]
fn a_server_that_is_a_round_behind_fails_a_paced_run() {
    let mut session = opened(Pace::Round(1_000), &[10, 11], &[2]);
    session.resume(0);
    assert!(session.tick(10_000).is_err());
}

#[test]
fn nothing_is_sent_beyond_the_servers_windows() {
    let mut session = opened(Pace::Round(1), &[i64::MAX; 10_000], &[10_000]);
    session.resume(0);
    session.tick(5_999).expect("a round of ten thousand");
    let sent = asked(&mut session).len();
    assert!(sent < 6_000 && sent * 15 <= 65_535, "{sent}");
    let mut update = Vec::new();
    http2::write_window_update(&mut update, 0, 1 << 20);
    http2::write_window_update(&mut update, 1, 1 << 20);
    session.feed(&update, 0, &mut Tally::new()).expect("good");
    assert_eq!(sent + asked(&mut session).len(), 6_000);
}
