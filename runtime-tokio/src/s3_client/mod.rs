//! S3 for one shard, through the AWS SDK with everything switched off that decides on its own: no retries, no
//! checksum trailers, no guard against slow streams.

mod outcome;
mod proof;
#[cfg(test)]
#[cfg(feature = "peers")]
mod tests;
mod upload_body;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;
use std::time::Duration;

use aws_runtime::auth::PayloadSigningOverride;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, Builder, ConfigBag, Credentials, Intercept, Region, RequestChecksumCalculation,
    ResponseChecksumValidation, RuntimeComponents, SharedCredentialsProvider, SharedHttpClient,
    StalledStreamProtectionConfig,
};
use aws_sdk_s3::error::BoxError;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{BucketLocationConstraint, CompletedMultipartUpload, CompletedPart, CreateBucketConfiguration};
use aws_smithy_http_client::tls;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use kafscale_proxy_core::inputs::ReadResult;
use kafscale_proxy_core::s3::{Refusal, Request, Response};
use kafscale_proxy_core::{Input, OperationId, Outcome, effects, inputs};
use md5::Md5;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::pulled::{Pulled, Source};
use crate::report::Report;
use crate::settings::{S3Credentials, S3Settings};
use crate::tasks::spawn_local;
use outcome::{Failure, Kind};
use proof::{Proof, present};

impl Source for ByteStream {
    async fn next(&mut self) -> Option<Result<Bytes, String>> {
        Self::next(self).await.map(|next| next.map_err(|error| error.to_string()))
    }

    fn is_at_end(&self) -> bool {
        false
    }
}

/// An opened object.
enum Object {
    Waiting(Pulled<ByteStream>),
    /// A `ReadObject` is open. Dropping this ends it: with the entry goes the read.
    Reading {
        _end: oneshot::Sender<()>,
    },
}

/// The S3 client of a shard.
pub(crate) struct S3Client {
    report: Report,
    settings: S3Settings,
    client: Client,
    presigning_client: Client,
    open: RefCell<HashMap<OperationId, oneshot::Sender<()>>>,
    objects: RefCell<HashMap<OperationId, Object>>,
}

/// Says what the signature covers, in place of hashing the body once more.
#[derive(Debug)]
struct SignedPayload(PayloadSigningOverride);

impl Intercept for SignedPayload {
    fn name(&self) -> &'static str {
        "SignedPayload"
    }

    fn read_before_signing(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        bag.interceptor_state().store_put(self.0.clone());
        Ok(())
    }
}

impl S3Client {
    /// Makes the clients; no connection yet. Must be called on the shard's own runtime, whose connections these are.
    pub(crate) async fn new(settings: S3Settings, report: Report) -> Self {
        let http = aws_smithy_http_client::Builder::new()
            .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
            .build_https();
        let credentials = credentials(&settings, &http).await;
        let config = |endpoint: &Option<String>| {
            let mut config = Builder::new()
                .behavior_version(BehaviorVersion::latest())
                .region(Region::new(settings.region.clone()))
                .http_client(http.clone())
                .retry_config(RetryConfig::disabled())
                .timeout_config(TimeoutConfig::builder().connect_timeout(settings.connect_timeout).build())
                .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
                .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
                .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
                .force_path_style(settings.path_style);
            config.set_credentials_provider(credentials.clone());
            config.set_endpoint_url(endpoint.clone());
            Client::from_conf(config.build())
        };
        Self {
            report,
            client: config(&settings.endpoint),
            presigning_client: config(&settings.public_endpoint),
            open: RefCell::default(),
            objects: RefCell::default(),
            settings,
        }
    }

    /// Carries out one order.
    pub(crate) fn carry_out(self: &Rc<Self>, order: effects::S3) {
        match order {
            effects::S3::Request { operation, request } => self.start(operation, request),
            effects::S3::ReadObject { operation, object, max_bytes } => self.read(operation, object, max_bytes),
            effects::S3::ReleaseObject { object } => {
                self.objects.borrow_mut().remove(&object);
            }
            effects::S3::Cancel { operation } => {
                if let Some(cancel) = self.open.borrow_mut().remove(&operation) {
                    // Fails when the operation has just finished: then its completion is on its way.
                    let _ = cancel.send(());
                }
            }
        }
    }

    fn start(self: &Rc<Self>, operation: OperationId, request: Request) {
        let (cancel, cancelled) = oneshot::channel();
        self.open.borrow_mut().insert(operation, cancel);
        let this = Rc::clone(self);
        spawn_local(async move {
            let outcome = tokio::select! {
                biased;
                outcome = this.request(operation, request) => outcome,
                _ = cancelled => Outcome::Unknown("cancelled".into()),
            };
            this.open.borrow_mut().remove(&operation);
            this.report.tell(Input::S3(inputs::S3::Finished { operation, outcome }));
        });
    }

    async fn request(&self, operation: OperationId, request: Request) -> Outcome<Response, Refusal> {
        let kind = Kind::from(&request);
        match self.send(operation, request).await {
            Ok(response) => Outcome::Applied(response),
            Err(failure) => outcome::outcome(kind, failure),
        }
    }

    async fn send(&self, operation: OperationId, request: Request) -> Result<Response, Failure> {
        let (client, bucket) = (&self.client, &self.settings.bucket);
        match request {
            Request::HeadBucket => {
                client
                    .head_bucket()
                    .bucket(bucket)
                    .customize()
                    .interceptor(Proof::NoPage)
                    .send()
                    .await
                    .map_err(outcome::failure)?;
                Ok(Response::Done)
            }
            Request::CreateBucket => {
                client
                    .create_bucket()
                    .bucket(bucket)
                    .set_create_bucket_configuration(self.location())
                    .customize()
                    .interceptor(Proof::Empty)
                    .send()
                    .await
                    .map_err(outcome::failure)?;
                Ok(Response::Done)
            }
            Request::PutObject { key, body, sha256, content_type } => {
                let checksum = self.checksum(&body).await?;
                let answer = client
                    .put_object()
                    .bucket(bucket)
                    .key(key)
                    .set_content_type(content_type)
                    .set_content_md5(checksum)
                    .content_length(signed(upload_body::length(&body)))
                    .body(upload_body::stream(body))
                    .customize()
                    .interceptor(SignedPayload(PayloadSigningOverride::Precomputed(hex(&sha256))))
                    .interceptor(Proof::Empty)
                    .send()
                    .await
                    .map_err(outcome::failure)?;
                present(answer.e_tag, "ETag").map(|_| Response::Done)
            }
            Request::CreateMultipartUpload { key, content_type } => {
                let answer = client
                    .create_multipart_upload()
                    .bucket(bucket)
                    .key(key)
                    .set_content_type(content_type)
                    .send()
                    .await
                    .map_err(outcome::failure)?;
                present(answer.upload_id, "UploadId").map(Response::UploadCreated)
            }
            Request::UploadPart { key, upload_id, part_number, body } => {
                let checksum = self.checksum(&body).await?;
                let payload = if self.settings.sign_payload {
                    PayloadSigningOverride::Precomputed(hex(&digest::<Sha256>(body.clone()).await?))
                } else {
                    PayloadSigningOverride::UnsignedPayload
                };
                let answer = client
                    .upload_part()
                    .bucket(bucket)
                    .key(key)
                    .upload_id(upload_id)
                    .part_number(i32::from(part_number))
                    .set_content_md5(checksum)
                    .content_length(signed(upload_body::length(&body)))
                    .body(upload_body::stream(body))
                    .customize()
                    .interceptor(SignedPayload(payload))
                    .interceptor(Proof::Empty)
                    .send()
                    .await
                    .map_err(outcome::failure)?;
                present(answer.e_tag, "ETag").map(Response::PartStored)
            }
            Request::CompleteMultipartUpload { key, upload_id, parts } => {
                let parts = parts
                    .into_iter()
                    .map(|(number, etag)| CompletedPart::builder().part_number(i32::from(number)).e_tag(etag).build())
                    .collect();
                let answer = client
                    .complete_multipart_upload()
                    .bucket(bucket)
                    .key(key)
                    .upload_id(upload_id)
                    .multipart_upload(CompletedMultipartUpload::builder().set_parts(Some(parts)).build())
                    .send()
                    .await
                    .map_err(outcome::failure)?;
                // The status came before the work was done: only a whole result document proves it.
                present(answer.e_tag, "ETag").map(|_| Response::Done)
            }
            Request::AbortMultipartUpload { key, upload_id } => {
                client
                    .abort_multipart_upload()
                    .bucket(bucket)
                    .key(key)
                    .upload_id(upload_id)
                    .customize()
                    .interceptor(Proof::Removed)
                    .send()
                    .await
                    .map_err(outcome::failure)?;
                Ok(Response::Done)
            }
            Request::DeleteObject { key } => {
                client
                    .delete_object()
                    .bucket(bucket)
                    .key(key)
                    .customize()
                    .interceptor(Proof::Removed)
                    .send()
                    .await
                    .map_err(outcome::failure)?;
                Ok(Response::Done)
            }
            Request::HeadObject { key } => {
                let answer = client.head_object().bucket(bucket).key(key).send().await.map_err(outcome::failure)?;
                object(answer.content_length, answer.content_type)
            }
            Request::GetObject { key } => {
                let answer = client.get_object().bucket(bucket).key(key).send().await.map_err(outcome::failure)?;
                let response = object(answer.content_length, answer.content_type)?;
                self.objects.borrow_mut().insert(operation, Object::Waiting(Pulled::new(answer.body)));
                Ok(response)
            }
            Request::PresignGetObject { key, expires_seconds } => {
                let expires = PresigningConfig::expires_in(Duration::from_secs(expires_seconds))
                    .map_err(|error| Failure::NotSent(error.to_string()))?;
                let request = self.presigning_client.get_object().bucket(bucket).key(key);
                let presigned = request.presigned(expires).await.map_err(outcome::failure)?;
                Ok(Response::Url(presigned.uri().to_owned()))
            }
        }
    }

    /// `Content-MD5` of a body, when checksums are wanted. A header and not a trailer, which many stores do not know; and
    /// unlike `x-amz-checksum-*` of parts it need not be repeated when the upload is completed.
    async fn checksum(&self, body: &[Bytes]) -> Result<Option<String>, Failure> {
        if !self.settings.request_checksum {
            return Ok(None);
        }
        let digest = digest::<Md5>(body.to_vec()).await?;
        Ok(Some(BASE64_STANDARD.encode(digest)))
    }

    /// us-east-1 must not be named as a location.
    fn location(&self) -> Option<CreateBucketConfiguration> {
        let region = self.settings.region.as_str();
        (region != "us-east-1").then(|| {
            let location = BucketLocationConstraint::from(region);
            CreateBucketConfiguration::builder().location_constraint(location).build()
        })
    }

    fn read(self: &Rc<Self>, operation: OperationId, object: OperationId, max_bytes: usize) {
        let (end, ended) = oneshot::channel();
        let opened = self
            .objects
            .borrow_mut()
            .get_mut(&object)
            .map(|opened| std::mem::replace(opened, Object::Reading { _end: end }));
        let this = Rc::clone(self);
        let told = move |result| this.report.tell(Input::S3(inputs::S3::ObjectRead { operation, result }));
        let Some(Object::Waiting(mut body)) = opened else {
            told(ReadResult::Broken("the object is not open".into()));
            return;
        };
        let this = Rc::clone(self);
        spawn_local(async move {
            let result = tokio::select! {
                biased;
                result = body.read(max_bytes) => result,
                _ = ended => ReadResult::Broken("released".into()),
            };
            match &result {
                ReadResult::Chunk(_) => {
                    // A release meanwhile has removed the entry.
                    if let Some(opened) = this.objects.borrow_mut().get_mut(&object) {
                        *opened = Object::Waiting(body);
                    }
                }
                ReadResult::End | ReadResult::Broken(_) => {
                    this.objects.borrow_mut().remove(&object);
                }
            }
            told(result);
        });
    }
}

async fn credentials(settings: &S3Settings, http: &SharedHttpClient) -> Option<SharedCredentialsProvider> {
    match &settings.credentials {
        Some(S3Credentials { access_key, secret_key, session_token }) => {
            let fixed = Credentials::new(access_key, secret_key, session_token.clone(), None, "settings");
            Some(SharedCredentialsProvider::new(fixed))
        }
        None => chain(settings, http).await,
    }
}

#[cfg(feature = "aws-chain")]
async fn chain(settings: &S3Settings, http: &SharedHttpClient) -> Option<SharedCredentialsProvider> {
    // The loader is given our HTTP client: its own would bring a second cryptography library.
    aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new(settings.region.clone()))
        .http_client(http.clone())
        .load()
        .await
        .credentials_provider()
}

#[cfg(not(feature = "aws-chain"))]
async fn chain(_: &S3Settings, _: &SharedHttpClient) -> Option<SharedCredentialsProvider> {
    tracing::warn!("no S3 credentials are set, and this build does not have the standard AWS chain");
    None
}

fn object(length: Option<i64>, content_type: Option<String>) -> Result<Response, Failure> {
    let size = length.and_then(|length| u64::try_from(length).ok());
    let size = size.ok_or_else(|| Failure::Lost("the answer has no length".into()))?;
    Ok(Response::Object { size, content_type })
}

/// Lengths of bodies in memory are far below the limit of the SDK's type.
fn signed(length: u64) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

async fn digest<D: Digest + 'static>(body: Vec<Bytes>) -> Result<Vec<u8>, Failure> {
    let digest = spawn_blocking(move || {
        let mut hasher = D::new();
        for bytes in &body {
            hasher.update(bytes);
        }
        hasher.finalize().to_vec()
    });
    digest.await.map_err(|error| Failure::NotSent(error.to_string()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
