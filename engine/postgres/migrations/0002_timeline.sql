-- The history of the database in which the partition was opened last: it changes
-- when a standby is promoted or a backup restored.
ALTER TABLE leasehold_partition ADD COLUMN timeline bigint NOT NULL DEFAULT 0;
