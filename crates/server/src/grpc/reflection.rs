//! gRPC reflection: what this port serves, for tools that have no protos at hand.
//!
//! `grpc.reflection.v1`, and `v1alpha` by the same messages: the two differ in nothing but their names.

use super::status;
use crate::descriptors;
use futures::StreamExt;
use futures::stream::BoxStream;
use meerkat_proto::pb::reflection as pb;
use meerkat_proto::pb::reflection::server_reflection_server::{ServerReflection, ServerReflectionServer};
use pb::server_reflection_request::MessageRequest as Ask;
use pb::server_reflection_response::MessageResponse as Answer;
use prost_reflect::{DescriptorPool, FileDescriptor};
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status, Streaming};
use tower::ServiceExt;

/// The path by which older tools ask, and the one that answers.
const ALPHA_PATH: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
const PATH: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const ALPHA_SERVICE: &str = "grpc.reflection.v1alpha.ServerReflection";

struct ReflectionService;

pub(super) fn service() -> axum::Router {
    Routes::new(ServerReflectionServer::new(ReflectionService)).into_axum_router().reset_fallback()
}

/// The service under its older name.
pub(super) fn as_alpha(service: axum::Router) -> axum::Router {
    let service = service.map_request(|request: http::Request<axum::body::Body>| {
        let (mut parts, body) = request.into_parts();
        parts.uri = http::Uri::from_static(PATH);
        http::Request::from_parts(parts, body)
    });
    axum::Router::new().route_service(ALPHA_PATH, service)
}

#[tonic::async_trait]
impl ServerReflection for ReflectionService {
    type ServerReflectionInfoStream = BoxStream<'static, Result<pb::ServerReflectionResponse, Status>>;

    async fn server_reflection_info(
        &self,
        request: Request<Streaming<pb::ServerReflectionRequest>>,
    ) -> Result<Response<Self::ServerReflectionInfoStream>, Status> {
        Ok(Response::new(Box::pin(request.into_inner().map(|request| request.map(answer)))))
    }
}

fn answer(request: pb::ServerReflectionRequest) -> pb::ServerReflectionResponse {
    let pool = descriptors::pool();
    let answer = match &request.message_request {
        Some(Ask::ListServices(_)) => Ok(Answer::ListServicesResponse(services())),
        Some(Ask::FileByFilename(name)) => found(pool.get_file_by_name(name), name),
        Some(Ask::FileContainingSymbol(symbol)) => found(file_of(pool, symbol), symbol),
        // proto3: there are none.
        Some(Ask::FileContainingExtension(ask)) => Err(missing(&ask.containing_type)),
        Some(Ask::AllExtensionNumbersOfType(kind)) => match pool.get_message_by_name(kind) {
            Some(_) => Ok(Answer::AllExtensionNumbersResponse(pb::ExtensionNumberResponse {
                base_type_name: kind.clone(),
                extension_number: Vec::new(),
            })),
            None => Err(missing(kind)),
        },
        None => Err(pb::ErrorResponse {
            error_code: Code::InvalidArgument as i32,
            error_message: status::unknown_action("reflection request").message().to_owned(),
        }),
    };
    pb::ServerReflectionResponse {
        valid_host: request.host.clone(),
        original_request: Some(request),
        message_response: Some(answer.unwrap_or_else(Answer::ErrorResponse)),
    }
}

fn services() -> pb::ListServiceResponse {
    let mut names: Vec<String> =
        descriptors::services().map(|service| service.full_name().to_owned()).collect();
    names.push(ALPHA_SERVICE.to_owned());
    names.sort();
    pb::ListServiceResponse { service: names.into_iter().map(|name| pb::ServiceResponse { name }).collect() }
}

fn missing(what: &str) -> pb::ErrorResponse {
    pb::ErrorResponse {
        error_code: Code::NotFound as i32,
        error_message: format!("this server knows no {what:?}; ask for list_services"),
    }
}

fn found(file: Option<FileDescriptor>, what: &str) -> Result<Answer, pb::ErrorResponse> {
    let mut files = vec![file.ok_or_else(|| missing(what))?];
    let mut next = 0;
    while next < files.len() {
        let needed: Vec<FileDescriptor> = files[next].dependencies().collect();
        files.extend(needed.into_iter().filter(|file| !files.contains(file)).collect::<Vec<_>>());
        next += 1;
    }
    let file_descriptor_proto = files.iter().map(|file| file.encode_to_vec().into()).collect();
    Ok(Answer::FileDescriptorResponse(pb::FileDescriptorResponse { file_descriptor_proto }))
}

/// The file that declares a message, an enum or a service, or something in one of them.
fn file_of(pool: &DescriptorPool, symbol: &str) -> Option<FileDescriptor> {
    // The other name of the service that is declared as v1.
    let symbol = if symbol == ALPHA_SERVICE { "grpc.reflection.v1.ServerReflection" } else { symbol };
    let declared = |name: &str| {
        let message = pool.get_message_by_name(name).map(|message| message.parent_file());
        let other = || pool.get_enum_by_name(name).map(|kind| kind.parent_file());
        let service = || pool.get_service_by_name(name).map(|service| service.parent_file());
        message.or_else(other).or_else(service)
    };
    declared(symbol).or_else(|| declared(symbol.rsplit_once('.')?.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::prost::Message;
    use prost_reflect::prost_types::FileDescriptorProto;

    fn ask(request: Ask) -> Answer {
        let request = pb::ServerReflectionRequest { host: "h".to_owned(), message_request: Some(request) };
        answer(request).message_response.expect("an answer")
    }

    #[test]
    fn a_symbol_is_answered_with_its_file_and_all_that_it_imports() {
        for symbol in
            ["v3electionpb.Election", "v3electionpb.Election.Campaign", "v3electionpb.LeaderKey.name"]
        {
            let Answer::FileDescriptorResponse(files) = ask(Ask::FileContainingSymbol(symbol.to_owned()))
            else {
                panic!("{symbol} is not found");
            };
            let files = files.file_descriptor_proto.into_iter();
            let files = files.map(|file| FileDescriptorProto::decode(file).expect("a descriptor"));
            let packages: Vec<String> = files.map(|file| file.package().to_owned()).collect();
            assert_eq!(packages[0], "v3electionpb");
            for package in ["etcdserverpb", "mvccpb", "authpb"] {
                assert_eq!(packages.iter().filter(|known| *known == package).count(), 1, "{packages:?}");
            }
        }
    }

    #[test]
    fn services_are_listed_and_what_is_unknown_is_said_so() {
        let Answer::ListServicesResponse(list) = ask(Ask::ListServices(String::new())) else {
            panic!("no list")
        };
        for name in ["etcdserverpb.KV", "grpc.reflection.v1.ServerReflection", ALPHA_SERVICE] {
            assert!(list.service.iter().any(|service| service.name == name), "{name}");
        }
        for request in [Ask::FileByFilename("nope".to_owned()), Ask::FileContainingSymbol("a.b.c".to_owned())]
        {
            assert!(matches!(ask(request), Answer::ErrorResponse(error) if error.error_code == 5));
        }
    }
}
