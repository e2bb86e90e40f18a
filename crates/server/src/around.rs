//! One async function around each route of a router.
//!
//! A route under a layer is a service in a box, which axum copies with all the boxes inside it for each call.
//! So what stands around the services is one such function that calls the others, and not a layer each.

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::Route;
use futures::FutureExt;
use http::Request;
use std::convert::Infallible;
use tower::layer::layer_fn;
use tower::service_fn;

/// The routes, whose calls `answer` answers; it has the route itself to go on with.
pub(crate) fn around<A, F>(routes: Router, answer: A) -> Router
where
    A: Fn(Route, Request<Body>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    routes.layer(layer_fn(move |route: Route| {
        let answer = answer.clone();
        service_fn(move |request| answer(route.clone(), request).map(Ok::<_, Infallible>))
    }))
}

/// The route's own answer.
pub(crate) async fn ask(mut route: Route, request: Request<Body>) -> Response {
    let Ok(response) = tower::Service::call(&mut route, request).await;
    response
}
