-- A partition is one state. Whoever opens it raises its epoch.
CREATE TABLE leasehold_partition (
    partition bigint PRIMARY KEY,
    epoch     bigint NOT NULL,
    -- The history of the database in which the partition was opened last: it changes
    -- when a standby is promoted or a backup restored.
    timeline  bigint NOT NULL DEFAULT 0,
    -- The server that leads the partition. Nobody does if there is none or it is not
    -- registered any more.
    leader    uuid
);

-- The log of each partition: what was committed and is not in the records yet.
CREATE TABLE leasehold_log (
    partition bigint NOT NULL,
    sequence  bigint NOT NULL,
    epoch     bigint NOT NULL,
    batch     bytea  NOT NULL,
    PRIMARY KEY (partition, sequence)
);

CREATE TABLE leasehold_record (
    partition bigint   NOT NULL,
    space     smallint NOT NULL,
    key       bytea    NOT NULL,
    value     bytea    NOT NULL,
    PRIMARY KEY (partition, space, key)
);

-- The servers that share the database, each for as long as it is registered. The last
-- three are what people want to know of a server.
CREATE TABLE leasehold_server (
    id          uuid    PRIMARY KEY,
    address     text    NOT NULL,
    process     text    NOT NULL,
    beats       bigint  NOT NULL,
    draining    boolean NOT NULL,
    name        text    NOT NULL DEFAULT '',
    version     text    NOT NULL DEFAULT '',
    connections bigint  NOT NULL DEFAULT 0
);

-- Over how many partitions the runs are spread, fixed when the database is first
-- used.
CREATE TABLE leasehold_cluster (
    whole      boolean PRIMARY KEY DEFAULT true CHECK (whole),
    partitions bigint  NOT NULL
);

-- The runs that a copy brought into the database. They are in the first partition,
-- whatever their names, because their tokens name no other.
CREATE TABLE leasehold_settled (run text PRIMARY KEY);
