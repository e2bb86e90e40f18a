//! Every order in which things can happen to the hub: all of them in small cases, thousands of them
//! drawn by chance, and those that real threads bring about.

mod every_order;
mod follower;
mod known_bad;
mod neighbours;
mod random;
mod reader;
mod schedule;
mod small_cases;
mod store;
mod threads;
mod world;
