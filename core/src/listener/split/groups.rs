//! DescribeGroups and DeleteGroups: split by group coordinator.

use super::{Items, Place};
use crate::config::ClusterKind;
use crate::kafka::{
    DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    DescribedGroup, ErrorCode, Str,
};
use crate::listener::routes::Key;

fn places(groups: &[Str]) -> Vec<Place> {
    let place = |(entry, group): (usize, &Str)| Place { key: Key::Group(group.as_str().to_owned()), entry, index: 0 };
    groups.iter().enumerate().map(place).collect()
}

fn only(groups: &[Str], items: &[usize]) -> Vec<Str> {
    items.iter().map(|item| groups[*item].clone()).collect()
}

impl Items for DescribeGroupsRequest {
    type Item = DescribedGroup;

    const MOVED: ErrorCode = ErrorCode::NOT_COORDINATOR;
    const UNSENT: ErrorCode = ErrorCode::NOT_COORDINATOR;
    const OWNER_ONLY: bool = false;
    const REPEATABLE: bool = true;
    const CHANGES_METADATA: bool = false;

    fn places(&self) -> Vec<Place> {
        places(&self.groups)
    }

    fn only(&self, items: &[usize]) -> Self {
        Self { groups: only(&self.groups, items), ..*self }
    }

    fn take(response: DescribeGroupsResponse) -> (Vec<Self::Item>, i32) {
        (response.groups, response.throttle_time_ms)
    }

    fn key(answer: &Self::Item) -> Key {
        Key::Group(answer.group_id.as_str().to_owned())
    }

    fn code(answer: &Self::Item) -> ErrorCode {
        answer.error_code
    }

    fn failed(&self, place: &Place, code: ErrorCode) -> Self::Item {
        DescribedGroup { error_code: code, group_id: self.groups[place.entry].clone(), ..DescribedGroup::default() }
    }

    /// Clients of these versions expect of an unknown group that it is dead, not an error.
    fn present(kind: ClusterKind, answer: &mut Self::Item) {
        match kind {
            ClusterKind::KafScale if answer.error_code == ErrorCode::GROUP_ID_NOT_FOUND => {
                answer.error_code = ErrorCode::NONE;
                answer.group_state = Str::from_static("Dead");
            }
            ClusterKind::KafScale => {}
        }
    }

    fn merge(&self, groups: Vec<Self::Item>, throttle_time_ms: i32) -> DescribeGroupsResponse {
        DescribeGroupsResponse { throttle_time_ms, groups }
    }
}

impl Items for DeleteGroupsRequest {
    type Item = DeletableGroupResult;

    const MOVED: ErrorCode = ErrorCode::NOT_COORDINATOR;
    const UNSENT: ErrorCode = ErrorCode::NOT_COORDINATOR;
    const OWNER_ONLY: bool = false;
    // A second deletion would say that there is no such group.
    const REPEATABLE: bool = false;
    const CHANGES_METADATA: bool = true;

    fn places(&self) -> Vec<Place> {
        places(&self.groups_names)
    }

    fn only(&self, items: &[usize]) -> Self {
        Self { groups_names: only(&self.groups_names, items) }
    }

    fn take(response: DeleteGroupsResponse) -> (Vec<Self::Item>, i32) {
        (response.results, response.throttle_time_ms)
    }

    fn key(answer: &Self::Item) -> Key {
        Key::Group(answer.group_id.as_str().to_owned())
    }

    fn code(answer: &Self::Item) -> ErrorCode {
        answer.error_code
    }

    fn failed(&self, place: &Place, code: ErrorCode) -> Self::Item {
        DeletableGroupResult { group_id: self.groups_names[place.entry].clone(), error_code: code }
    }

    fn merge(&self, results: Vec<Self::Item>, throttle_time_ms: i32) -> DeleteGroupsResponse {
        DeleteGroupsResponse { throttle_time_ms, results }
    }
}
