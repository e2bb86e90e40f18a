//! gRPC reflection, asked as tools ask.

use meerkat_chaos::Failure;
use meerkat_chaos::driver::Product;
use meerkat_proto::pb::reflection as pb;
use pb::server_reflection_client::ServerReflectionClient;
use pb::server_reflection_request::MessageRequest as Ask;
use pb::server_reflection_response::MessageResponse as Answer;

use std::task::{Context, Poll};
use tonic::codegen::Service;
use tonic::transport::Channel;

use super::{gateway, start};

pub async fn tells_of_every_service() -> Result<(), Failure> {
    let meerkat = start(Product::Meerkat, &[]).await?;
    let url = format!("http://127.0.0.1:{}", gateway::port(&meerkat));
    let refused = |error: &dyn std::fmt::Display| Failure::broken(format!("reflection: {error}"));
    let channel =
        tonic::transport::Endpoint::from_shared(url).map_err(|error| refused(&error))?.connect_lazy();
    let asks = [Ask::ListServices(String::new()), Ask::FileContainingSymbol("v3lockpb.Lock".to_owned())];
    let asks: Vec<_> = asks
        .map(|ask| pb::ServerReflectionRequest { message_request: Some(ask), ..Default::default() })
        .into();
    let mut client = ServerReflectionClient::new(channel.clone());
    let answers = client.server_reflection_info(tokio_stream::iter(asks.clone())).await;
    let mut answers = answers.map_err(|error| refused(&error))?.into_inner();
    let (mut services, mut files) = (Vec::new(), 0);
    while let Some(answer) = answers.message().await.map_err(|error| refused(&error))? {
        match answer.message_response {
            Some(Answer::ListServicesResponse(list)) => services.extend(list.service),
            Some(Answer::FileDescriptorResponse(found)) => files += found.file_descriptor_proto.len(),
            other => return Err(Failure::broken(format!("reflection answers {other:?}"))),
        }
    }
    let known = |name: &str| services.iter().any(|service| service.name == name);
    if !known("etcdserverpb.KV") || !known("v3electionpb.Election") || files < 3 {
        return Err(Failure::broken(format!("{services:?} and {files} files")));
    }
    alpha(channel, asks).await.map_err(|error| refused(&error))?;
    meerkat.finish()
}

/// The older name of the same service: the same client, with another path.
async fn alpha(channel: Channel, asks: Vec<pb::ServerReflectionRequest>) -> Result<(), tonic::Status> {
    let mut client = ServerReflectionClient::new(Renamed(channel));
    let mut answers = client.server_reflection_info(tokio_stream::iter(asks)).await?.into_inner();
    match answers.message().await? {
        Some(answer) if matches!(answer.message_response, Some(Answer::ListServicesResponse(_))) => Ok(()),
        other => Err(tonic::Status::internal(format!("{other:?}"))),
    }
}

#[derive(Clone)]
struct Renamed(Channel);

impl Service<http::Request<tonic::body::Body>> for Renamed {
    type Response = <Channel as Service<http::Request<tonic::body::Body>>>::Response;
    type Error = <Channel as Service<http::Request<tonic::body::Body>>>::Error;
    type Future = <Channel as Service<http::Request<tonic::body::Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<tonic::body::Body>) -> Self::Future {
        let renamed = request.uri().to_string().replace("reflection.v1.", "reflection.v1alpha.");
        *request.uri_mut() = renamed.parse().expect("a path");
        self.0.call(request)
    }
}
