//! Who is answered now, who waits and who is sent away: fair among users, and among the clients of one user,
//! however many requests one has.
//!
//! A seat is one request that is being answered. A user has at most so many seats, and all users together
//! at most so many; of a user's seats one client leaves a quarter to the others. Who finds none waits in a
//! line of its client's. Users take turns, and so do the clients of one user. A line has an end, and so have
//! all lines of a user, and all of them together: whoever comes then is refused at once.
//!
//! Always true: nobody waits who could have a seat. So a seat that is given up seats one more at most.

use std::collections::{HashMap, VecDeque};

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub seats: usize,
    pub seats_per_user: usize,
    pub waiting: usize,
    pub waiting_per_user: usize,
}

/// What one client of a user may have of what the user may have.
const fn share(of_user: usize) -> usize {
    of_user - of_user / 4
}

/// Whose requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    pub user: Box<str>,
    /// Which of the user's programs it is.
    pub client: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Seated,
    /// Whoever gives up a seat says when.
    Waits,
    Refused,
}

/// By which one that waits is known.
pub type Ticket = u64;

#[derive(Debug)]
pub struct FairQueue {
    limits: Limits,
    seated: usize,
    waiting: usize,
    users: HashMap<Box<str>, User>,
    /// Users with a line, the next one first.
    turns: VecDeque<Box<str>>,
}

#[derive(Debug, Default)]
struct User {
    seated: usize,
    waiting: usize,
    clients: HashMap<Box<str>, Line>,
    /// Clients with a line, the next one first.
    turns: VecDeque<Box<str>>,
}

#[derive(Debug, Default)]
struct Line {
    seated: usize,
    waiting: VecDeque<Ticket>,
}

impl FairQueue {
    pub fn new(limits: Limits) -> FairQueue {
        FairQueue { limits, seated: 0, waiting: 0, users: HashMap::new(), turns: VecDeque::new() }
    }

    pub fn seated(&self) -> usize {
        self.seated
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }

    pub fn ask(&mut self, flow: &Flow, ticket: Ticket) -> Admission {
        let limits = self.limits;
        let user = self.users.get(&flow.user);
        let line = user.and_then(|user| user.clients.get(&flow.client));
        let (seated, waiting) = user.map_or((0, 0), |user| (user.seated, user.waiting));
        let (own_seated, own_waiting) = line.map_or((0, 0), |line| (line.seated, line.waiting.len()));
        let may_sit = self.seated < limits.seats
            && seated < limits.seats_per_user
            && own_seated < share(limits.seats_per_user);
        let may_wait = self.waiting < limits.waiting
            && waiting < limits.waiting_per_user
            && own_waiting < share(limits.waiting_per_user);
        if !may_sit && !may_wait {
            return Admission::Refused;
        }
        let user = self.users.entry(flow.user.clone()).or_default();
        let line = user.clients.entry(flow.client.clone()).or_default();
        if may_sit {
            line.seated += 1;
            user.seated += 1;
            self.seated += 1;
            return Admission::Seated;
        }
        if line.waiting.is_empty() {
            user.turns.push_back(flow.client.clone());
        }
        if user.waiting == 0 {
            self.turns.push_back(flow.user.clone());
        }
        line.waiting.push_back(ticket);
        user.waiting += 1;
        self.waiting += 1;
        Admission::Waits
    }

    /// A seat is given up. The one that is seated in its place, if somebody is.
    pub fn leave(&mut self, flow: &Flow) -> Option<Ticket> {
        let user = self.users.get_mut(&flow.user)?;
        let line = user.clients.get_mut(&flow.client).filter(|line| 0 < line.seated)?;
        line.seated -= 1;
        user.seated -= 1;
        self.seated -= 1;
        self.clear_away(flow);
        self.seat_next()
    }

    /// Somebody no longer wants to wait. False if it does not: it was seated, and has to leave.
    pub fn forget(&mut self, flow: &Flow, ticket: Ticket) -> bool {
        let Some(user) = self.users.get_mut(&flow.user) else { return false };
        let Some(line) = user.clients.get_mut(&flow.client) else { return false };
        let Some(at) = line.waiting.iter().position(|waiting| *waiting == ticket) else { return false };
        line.waiting.remove(at);
        user.waiting -= 1;
        self.waiting -= 1;
        if line.waiting.is_empty() {
            user.turns.retain(|each| *each != flow.client);
        }
        if user.waiting == 0 {
            self.turns.retain(|each| *each != flow.user);
        }
        self.clear_away(flow);
        true
    }

    fn seat_next(&mut self) -> Option<Ticket> {
        if self.limits.seats <= self.seated {
            return None;
        }
        let most = self.limits.seats_per_user;
        let users = &self.users;
        let may_sit = |name: &str| users.get(name).is_some_and(|user| user.next(most).is_some());
        let at = self.turns.iter().position(|name| may_sit(name))?;
        let name = self.turns.remove(at)?;
        let user = self.users.get_mut(&name)?;
        let ticket = user.seat_next(most)?;
        self.seated += 1;
        self.waiting -= 1;
        if 0 < user.waiting {
            self.turns.push_back(name);
        }
        Some(ticket)
    }

    /// Of somebody who has nothing here any more nothing is kept.
    fn clear_away(&mut self, flow: &Flow) {
        let Some(user) = self.users.get_mut(&flow.user) else { return };
        let line = user.clients.get(&flow.client);
        if line.is_some_and(|line| line.seated == 0 && line.waiting.is_empty()) {
            user.clients.remove(&flow.client);
        }
        if user.clients.is_empty() {
            self.users.remove(&flow.user);
        }
    }
}

impl User {
    /// Which of its clients has the next seat, among those who wait.
    fn next(&self, most: usize) -> Option<usize> {
        if most <= self.seated {
            return None;
        }
        let may_sit = |client: &str| {
            self.clients.get(client).is_some_and(|line| line.seated < share(most) && !line.waiting.is_empty())
        };
        self.turns.iter().position(|client| may_sit(client))
    }

    fn seat_next(&mut self, most: usize) -> Option<Ticket> {
        let client = self.next(most).and_then(|at| self.turns.remove(at))?;
        let line = self.clients.get_mut(&client)?;
        let ticket = line.waiting.pop_front()?;
        line.seated += 1;
        self.seated += 1;
        self.waiting -= 1;
        if !line.waiting.is_empty() {
            self.turns.push_back(client);
        }
        Some(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn queue(seats: usize, per_user: usize, waiting: usize, waiting_per_user: usize) -> FairQueue {
        FairQueue::new(Limits { seats, seats_per_user: per_user, waiting, waiting_per_user })
    }

    /// `user` or `user/client`.
    fn flow(name: &str) -> Flow {
        let (user, client) = name.split_once('/').unwrap_or((name, ""));
        Flow { user: user.into(), client: client.into() }
    }

    #[test]
    fn one_user_has_so_many_seats_and_others_have_theirs() {
        let mut queue = queue(3, 2, 10, 10);
        assert_eq!(queue.ask(&flow("a"), 1), Admission::Seated);
        assert_eq!(queue.ask(&flow("a"), 2), Admission::Seated);
        assert_eq!(queue.ask(&flow("a"), 3), Admission::Waits);
        assert_eq!(queue.ask(&flow("b"), 4), Admission::Seated);
        assert_eq!(queue.ask(&flow("b"), 5), Admission::Waits);
        // The seat was one that only somebody else than a may have.
        assert_eq!(queue.leave(&flow("b")), Some(5));
        assert_eq!(queue.leave(&flow("a")), Some(3));
    }

    #[test]
    fn one_client_leaves_seats_and_places_to_the_others_of_its_user() {
        let mut queue = queue(100, 8, 100, 8);
        let greedy: Vec<Admission> = (0..20).map(|ticket| queue.ask(&flow("a/greedy"), ticket)).collect();
        let count = |admission| greedy.iter().filter(|each| **each == admission).count();
        assert_eq!((count(Admission::Seated), count(Admission::Waits)), (6, 6));
        for ticket in [100, 101] {
            assert_eq!(queue.ask(&flow("a/modest"), ticket), Admission::Seated);
        }
        for ticket in [102, 103] {
            assert_eq!(queue.ask(&flow("a/modest"), ticket), Admission::Waits, "of the user's seats");
        }
        assert_eq!(queue.ask(&flow("a/third"), 104), Admission::Refused, "the user has no place left");
        assert_eq!(queue.leave(&flow("a/greedy")), Some(6));
        assert_eq!(queue.leave(&flow("a/greedy")), Some(102), "they take turns");
        assert_eq!(queue.leave(&flow("a/greedy")), Some(7));
        assert_eq!(queue.leave(&flow("a/greedy")), Some(103));
    }

    #[test]
    fn lines_take_turns() {
        let mut queue = queue(1, 1, 10, 10);
        queue.ask(&flow("x"), 0);
        for (user, ticket) in [("a", 1), ("a", 2), ("a/other", 3), ("a", 4), ("b", 5)] {
            assert_eq!(queue.ask(&flow(user), ticket), Admission::Waits);
        }
        assert_eq!(queue.leave(&flow("x")), Some(1));
        assert_eq!(queue.leave(&flow("a")), Some(5), "first among users");
        assert_eq!(queue.leave(&flow("b")), Some(3), "then among the clients of one");
        assert_eq!(queue.leave(&flow("a/other")), Some(2));
        assert_eq!(queue.leave(&flow("a")), Some(4));
        assert_eq!(queue.leave(&flow("a")), None);
        assert!(queue.users.is_empty());
    }

    #[test]
    fn lines_end() {
        let mut queue = queue(1, 1, 2, 1);
        queue.ask(&flow("x"), 0);
        assert_eq!(queue.ask(&flow("a"), 1), Admission::Waits);
        assert_eq!(queue.ask(&flow("a"), 2), Admission::Refused);
        assert_eq!(queue.ask(&flow("b"), 3), Admission::Waits);
        assert_eq!(queue.ask(&flow("c"), 4), Admission::Refused);
        assert!(queue.forget(&flow("a"), 1));
        assert!(!queue.forget(&flow("a"), 1));
        assert_eq!(queue.ask(&flow("c"), 5), Admission::Waits);
        assert_eq!(queue.leave(&flow("x")), Some(3));
    }

    /// Against a count by hand: no bound is passed, nobody waits who could sit, and nothing stays behind.
    #[test]
    fn any_order_keeps_the_bounds() {
        let mut chance = StdRng::seed_from_u64(7);
        let names = ["a", "a/x", "a/y", "b", "b/x", "c"];
        for _ in 0..200 {
            let limits = Limits { seats: 6, seats_per_user: 4, waiting: 9, waiting_per_user: 5 };
            let mut queue = FairQueue::new(limits);
            let (mut seated, mut waiting): (Vec<&str>, Vec<(&str, Ticket)>) = (Vec::new(), Vec::new());
            for ticket in 0..200 {
                let name = names[chance.random_range(0..names.len())];
                match chance.random_range(0..3) {
                    0 | 1 => match queue.ask(&flow(name), ticket) {
                        Admission::Seated => seated.push(name),
                        Admission::Waits => waiting.push((name, ticket)),
                        Admission::Refused => {}
                    },
                    _ if !seated.is_empty() && chance.random_bool(0.7) => {
                        let gone = seated.swap_remove(chance.random_range(0..seated.len()));
                        if let Some(next) = queue.leave(&flow(gone)) {
                            let at = waiting.iter().position(|(_, each)| *each == next).expect("it waits");
                            seated.push(waiting.remove(at).0);
                        }
                    }
                    _ if !waiting.is_empty() => {
                        let (name, ticket) = waiting.swap_remove(chance.random_range(0..waiting.len()));
                        assert!(queue.forget(&flow(name), ticket));
                    }
                    _ => {}
                }
                assert_eq!((queue.seated(), queue.waiting()), (seated.len(), waiting.len()));
                let of_user =
                    |name: &str| seated.iter().filter(|each| flow(each).user == flow(name).user).count();
                let of_client = |name: &str| seated.iter().filter(|each| **each == name).count();
                assert!(seated.len() <= 6 && waiting.len() <= 9);
                assert!(names.iter().all(|name| of_user(name) <= 4 && of_client(name) <= 3));
                let could_sit = |name: &str| seated.len() < 6 && of_user(name) < 4 && of_client(name) < 3;
                assert!(!waiting.iter().any(|(name, _)| could_sit(name)));
            }
            while let Some(name) = seated.pop() {
                if let Some(next) = queue.leave(&flow(name)) {
                    let at = waiting.iter().position(|(_, each)| *each == next).expect("it waits");
                    seated.push(waiting.remove(at).0);
                }
            }
            assert!(queue.users.is_empty() && queue.turns.is_empty() && waiting.is_empty());
        }
    }
}
