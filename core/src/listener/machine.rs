//! Which machine answers a request that goes to brokers.

use super::any::Any;
use super::fetch::Fetch;
use super::group::Group;
use super::group::coordinated::Coordinated;
use super::group::join::JoinGroup;
use super::group::leave::LeaveGroup;
use super::group::offset_fetch::OffsetFetch;
use super::init_producer_id::InitProducerId;
use super::list_groups::ListGroups;
use super::request::{RequestHead, RequestMachine, Undecodable};
use super::split::Split;
use crate::context::Context;
use crate::kafka::{
    AlterConfigsRequest, ApiKey, CreatePartitionsRequest, CreateTopicsRequest, DeleteGroupsRequest,
    DeleteTopicsRequest, DescribeConfigsRequest, DescribeGroupsRequest, HeartbeatRequest, ListOffsetsRequest,
    OffsetCommitRequest, OffsetForLeaderEpochRequest, SyncGroupRequest,
};

/// The machine for this request. Produce, which has an order to keep, and what the proxy answers by itself are none of
/// its business: they count as undecodable.
pub(crate) fn machine(ctx: &Context<'_>, head: RequestHead) -> Result<Box<dyn RequestMachine>, Undecodable> {
    Ok(match head.api {
        ApiKey::Fetch => Box::new(Fetch::new(ctx, head)?),
        ApiKey::ListOffsets => Box::new(Split::<ListOffsetsRequest>::new(ctx, head)?),
        ApiKey::OffsetForLeaderEpoch => Box::new(Split::<OffsetForLeaderEpochRequest>::new(ctx, head)?),
        ApiKey::DescribeGroups => Box::new(Split::<DescribeGroupsRequest>::new(ctx, head)?),
        ApiKey::DeleteGroups => Box::new(Split::<DeleteGroupsRequest>::new(ctx, head)?),
        ApiKey::InitProducerId => Box::new(InitProducerId::new(ctx, head)?),
        ApiKey::ListGroups => Box::new(ListGroups::new(ctx, head)?),
        ApiKey::JoinGroup => Box::new(Coordinated::<JoinGroup>::new(ctx, head)?),
        ApiKey::SyncGroup => Box::new(Coordinated::<Group<SyncGroupRequest>>::new(ctx, head)?),
        ApiKey::Heartbeat => Box::new(Coordinated::<Group<HeartbeatRequest>>::new(ctx, head)?),
        ApiKey::LeaveGroup => Box::new(Coordinated::<LeaveGroup>::new(ctx, head)?),
        ApiKey::OffsetCommit => Box::new(Coordinated::<Group<OffsetCommitRequest>>::new(ctx, head)?),
        ApiKey::OffsetFetch => Box::new(Coordinated::<OffsetFetch>::new(ctx, head)?),
        ApiKey::DescribeConfigs => Box::new(Any::<DescribeConfigsRequest>::new(ctx, head)?),
        ApiKey::AlterConfigs => Box::new(Any::<AlterConfigsRequest>::new(ctx, head)?),
        ApiKey::CreatePartitions => Box::new(Any::<CreatePartitionsRequest>::new(ctx, head)?),
        ApiKey::CreateTopics => Box::new(Any::<CreateTopicsRequest>::new(ctx, head)?),
        ApiKey::DeleteTopics => Box::new(Any::<DeleteTopicsRequest>::new(ctx, head)?),
        ApiKey::Produce
        | ApiKey::Metadata
        | ApiKey::FindCoordinator
        | ApiKey::ApiVersions
        | ApiKey::SaslHandshake
        | ApiKey::SaslAuthenticate => return Err(Undecodable),
    })
}
