//! What an upload orders of S3.

use super::tries::Tries;
use super::{Phase, Store, Upload};
use crate::lfs::call::Call;
use crate::lfs::purpose::{Purpose, UploadStep};
use crate::s3::Request;

impl Upload {
    fn purpose(&self, step: UploadStep) -> Purpose {
        Purpose::Upload { exchange: self.exchange, step }
    }

    pub(super) fn create(&self, call: &mut Call<'_, '_>) {
        let (key, content_type) = (self.blob.key.clone(), self.blob.content_type.clone());
        call.s3(self.purpose(UploadStep::Create), Request::CreateMultipartUpload { key, content_type });
    }

    pub(super) fn send_part(&mut self, call: &mut Call<'_, '_>, part_number: u16) {
        let Phase::Sending { store: Store::Open(upload_id), parts, .. } = &mut self.phase else { return };
        let Some(part) = parts.get_mut(&part_number) else { return };
        part.tries.get_or_insert(Tries::InFlight(1));
        let request = Request::UploadPart {
            key: self.blob.key.clone(),
            upload_id: upload_id.clone(),
            part_number,
            body: part.pieces.clone(),
        };
        call.s3(self.purpose(UploadStep::Part(part_number)), request);
    }

    pub(super) fn put(&self, call: &mut Call<'_, '_>) {
        let Phase::Putting { pieces, stored, .. } = &self.phase else { return };
        let request = Request::PutObject {
            key: self.blob.key.clone(),
            body: pieces.clone(),
            sha256: stored.checksums.sha256,
            content_type: self.blob.content_type.clone(),
        };
        call.s3(self.purpose(UploadStep::Put), request);
    }

    pub(super) fn complete(&self, call: &mut Call<'_, '_>) {
        let Phase::Completing { upload_id, etags, .. } = &self.phase else { return };
        let request = Request::CompleteMultipartUpload {
            key: self.blob.key.clone(),
            upload_id: upload_id.clone(),
            parts: etags.iter().map(|(number, etag)| (*number, etag.clone())).collect(),
        };
        call.s3(self.purpose(UploadStep::Complete), request);
    }
}
