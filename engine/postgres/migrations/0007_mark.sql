-- By what a partition knows the database, and the transaction, that it was last led in. A
-- copy of the row is in another one. Only the leader of a copy writes it again.
CREATE TABLE leasehold_mark (
    partition bigint PRIMARY KEY,
    mark      text NOT NULL
);
