//! The part of the protobuf encoding that writing messages needs: no schema and no reading.

/// Appends fields to a message.
pub(crate) trait Message {
    fn varint(&mut self, value: u64);
    fn number(&mut self, field: u32, value: u64);
    fn fixed64(&mut self, field: u32, value: u64);
    fn bytes(&mut self, field: u32, value: &[u8]);

    fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    /// Appends a nested message. Its length comes first, so it is built separately.
    fn message(&mut self, field: u32, build: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = Vec::new();
        build(&mut inner);
        self.bytes(field, &inner);
    }
}

impl Message for Vec<u8> {
    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    #[inline]
    fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    fn fixed64(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3 | 1);
        self.extend_from_slice(&value.to_le_bytes());
    }

    #[inline]
    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.extend_from_slice(value);
    }
}
