//! Every store that the list-watch door can be served from keeps the same promises: the same cases, over
//! a member in this process, over a cluster of Meerkat's far away, and over one of etcd's.

mod compactions;
mod reads;
mod stage;
mod watches;
mod writes;

use stage::{Stage, etcd_from_afar, meerkat_from_afar, member_in_process};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_in_this_process_keeps_every_promise() {
    every_case(member_in_process().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn meerkat_from_afar_keeps_every_promise() {
    every_case(meerkat_from_afar().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_from_afar_keeps_every_promise() {
    if let Some(stage) = etcd_from_afar().await {
        every_case(stage).await;
    }
}

async fn every_case(stage: Stage) {
    cases(&stage).await;
    stage.end().await;
}

/// One after the other, as revisions are counted, and compaction is for all keys.
async fn cases(stage: &Stage) {
    writes::revisions_are_dense_and_now_covers_them(stage).await;
    writes::a_write_is_done_only_if_the_key_is_as_believed(stage).await;
    writes::of_two_who_believe_the_same_one_is_right(stage).await;
    writes::what_is_too_large_or_on_no_lease_is_not_done(stage).await;
    writes::a_lease_lives_on_as_long_as_it_is_renewed_and_nothing_is_written_for_it(stage).await;
    reads::pages_are_of_one_revision_and_leave_nothing_out(stage).await;
    reads::the_past_is_readable_and_the_future_is_not(stage).await;
    watches::a_watch_tells_all_after_a_revision_once_and_in_order(stage).await;
    watches::all_of_one_revision_comes_together(stage).await;
    watches::a_quiet_watch_says_how_far_the_store_has_come(stage).await;
    watches::a_quiet_watch_is_told_little_while_others_write(stage).await;
    watches::a_store_that_stands_still_says_how_far_it_is_too(stage).await;
    watches::what_a_lease_takes_with_it_is_told(stage).await;
    compactions::what_is_compacted_is_neither_read_nor_watched(stage).await;
}
