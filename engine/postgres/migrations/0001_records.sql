-- A partition is one state. Whoever opens it raises its epoch.
CREATE TABLE leasehold_partition (
    partition bigint PRIMARY KEY,
    epoch     bigint NOT NULL
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
