-- Over how many partitions the runs are spread, fixed when the database is first
-- used. Before this there was one.
CREATE TABLE leasehold_cluster (
    whole      boolean PRIMARY KEY DEFAULT true CHECK (whole),
    partitions bigint  NOT NULL
);

INSERT INTO leasehold_cluster (partitions) SELECT count(*) FROM leasehold_partition HAVING count(*) > 0;
