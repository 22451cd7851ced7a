-- The runs that a copy brought into the database. They are in the first partition,
-- whatever their names, because their tokens name no other.
CREATE TABLE leasehold_settled (run text PRIMARY KEY);
