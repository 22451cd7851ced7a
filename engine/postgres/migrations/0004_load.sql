-- What people want to know of a server.
ALTER TABLE leasehold_server ADD COLUMN name text NOT NULL DEFAULT '';
ALTER TABLE leasehold_server ADD COLUMN version text NOT NULL DEFAULT '';
ALTER TABLE leasehold_server ADD COLUMN connections bigint NOT NULL DEFAULT 0;
