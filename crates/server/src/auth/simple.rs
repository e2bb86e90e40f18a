//! Simple tokens: sixteen letters and the number of the log entry that gave them out.
//!
//! Every member learns of each from the log, as a digest of its letters, and forgets it when it was
//! not used there for a while or the member restarts. Which ones are void for another reason, the
//! state says.

use hashbrown::HashMap;
use meerkat_fault::Mutex;
use meerkat_state::AuthBook;
use meerkat_types::{AssignedToken, LogIndex, TokenDigest, UserName};
use ring::digest::{SHA256, digest};
use std::time::{Duration, Instant};

const LETTERS: &[u8; 52] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const LETTERS_OF_A_TOKEN: usize = 16;
/// Fewer are not worth a look for those that have run out.
const SWEEP_MIN: usize = 1_024;

pub(crate) struct SimpleTokens {
    ttl: Duration,
    /// Held for moments, never across an await.
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    tokens: HashMap<TokenDigest, Token>,
    /// How many tokens call for a look at all of them.
    sweep_at: usize,
}

struct Token {
    user: UserName,
    index: LogIndex,
    until: Instant,
}

/// Letters for a new token.
pub(crate) fn new_letters() -> String {
    (0..LETTERS_OF_A_TOKEN).map(|_| char::from(LETTERS[rand::random_range(0..LETTERS.len())])).collect()
}

pub(crate) fn digest_of(letters: &str) -> TokenDigest {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, letters.as_bytes()).as_ref());
    TokenDigest(bytes)
}

pub(crate) fn write(letters: &str, index: LogIndex) -> String {
    format!("{letters}.{index}")
}

/// The letters and the number of a token.
pub(crate) fn read(token: &str) -> Option<(&str, LogIndex)> {
    let (letters, index) = token.split_once('.')?;
    Some((letters, LogIndex(index.parse().ok()?)))
}

impl SimpleTokens {
    pub(crate) fn new(ttl: Duration) -> SimpleTokens {
        SimpleTokens { ttl, held: Mutex::default() }
    }

    /// A member that reads its log again after a restart hears of some a second time, as in etcd: who
    /// proposed them may have a clock that says nothing about their age.
    pub(crate) fn assigned(&self, token: AssignedToken, now: Instant) {
        let mut held = self.held.lock();
        if held.sweep_at.max(SWEEP_MIN) <= held.tokens.len() {
            held.tokens.retain(|_, token| now < token.until);
            held.sweep_at = 2 * held.tokens.len();
        }
        let AssignedToken { token, user, index } = token;
        held.tokens.insert(token, Token { user, index, until: now + self.ttl });
    }

    /// Whose token this is and its number, if it stands; being asked gives it more time.
    pub(crate) fn user(&self, token: &str, book: &AuthBook, now: Instant) -> Option<(UserName, LogIndex)> {
        let (letters, index) = read(token)?;
        let digest = digest_of(letters);
        let mut held = self.held.lock();
        let token = held.tokens.get_mut(&digest).filter(|token| token.index == index)?;
        if token.until <= now || !book.token_stands(token.user.as_str(), index) {
            held.tokens.remove(&digest);
            return None;
        }
        token.until = now + self.ttl;
        Some((token.user.clone(), index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use meerkat_state::AuthBook;
    use meerkat_types::{AuthRevision, Password};

    const TTL: Duration = Duration::from_secs(300);

    fn token(letters: &str, index: u64) -> AssignedToken {
        let user = UserName::new("root").expect("not empty");
        AssignedToken { token: digest_of(letters), user, index: LogIndex(index) }
    }

    fn book() -> AuthBook {
        AuthBook::with_root(Password::Hash(Bytes::from_static(b"hash")), LogIndex(3))
    }

    #[test]
    fn a_token_is_letters_and_a_number() {
        let letters = new_letters();
        assert_eq!(letters.len(), 16);
        assert!(letters.bytes().all(|letter| letter.is_ascii_alphabetic()));
        assert_ne!(letters, new_letters());
        assert_eq!(read(&write(&letters, LogIndex(17))), Some((letters.as_str(), LogIndex(17))));
        for bad in ["", "abc", "abc.", "abc.x", "abc.-1", "abc.1.2"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_token_stands_while_it_is_used_and_no_longer() {
        let (tokens, book, began) = (SimpleTokens::new(TTL), book(), Instant::now());
        tokens.assigned(token("a", 9), began);
        let user = |text: &str, after: u64| {
            tokens.user(text, &book, began + Duration::from_secs(after)).map(|(user, _)| user.to_string())
        };
        let root = Some("root".to_owned());
        assert_eq!(user("a.9", 200), root);
        assert_eq!(user("a.9", 499), root, "it slides");
        assert_eq!(user("a.8", 499), None, "another number");
        assert_eq!(user("b.9", 499), None, "other letters");
        assert_eq!(user("a.9", 799), None, "it ran out");
        assert_eq!(user("a.9", 0), None, "and is gone");
    }

    #[test]
    fn what_the_state_says_is_void_is_void() {
        let (tokens, book, now) = (SimpleTokens::new(TTL), book(), Instant::now());
        assert_eq!(book.revision(), AuthRevision(3));
        // The password was set by entry 3.
        tokens.assigned(token("a", 3), now);
        tokens.assigned(token("b", 4), now);
        assert_eq!(tokens.user("a.3", &book, now), None);
        assert!(tokens.user("b.4", &book, now).is_some());
        assert_eq!(tokens.user("b.4", &AuthBook::default(), now), None);
    }

    #[test]
    fn tokens_that_ran_out_do_not_pile_up() {
        let (tokens, began) = (SimpleTokens::new(TTL), Instant::now());
        for round in 0..10 * SWEEP_MIN as u64 {
            let now = began + Duration::from_secs(round);
            tokens.assigned(token(&round.to_string(), round), now);
        }
        assert!(tokens.held.lock().tokens.len() <= 2 * SWEEP_MIN);
    }
}
