-- The servers that share the database, each for as long as it is registered.
CREATE TABLE leasehold_server (
    id       uuid    PRIMARY KEY,
    address  text    NOT NULL,
    process  text    NOT NULL,
    beats    bigint  NOT NULL,
    draining boolean NOT NULL
);

-- The server that leads a partition. Nobody does if there is none or it is not
-- registered any more.
ALTER TABLE leasehold_partition ADD COLUMN leader uuid;
