// Package assignor decides which member of a processor group does what: the assignor
// "lacuna-slices".
//
// # Units and areas
//
// Linear hashing (package keyfilter) divides the keys of a group's inputs into buckets. So
// that all topics share one measure, however many partitions they have, the package counts in
// units: an initial bucket has 65,536 of them, and unit u begins at the point
// floor(u*P/Initial) of the line of a topic of P partitions. Any set of units is an [Area]. When
// a topic gains partitions P becomes what divides the numbers before and after ([Topic]).
//
// A task is a bucket at a member. Of a task an assignment says what is active, which the
// member processes and acknowledges, and what it rebuilds: what it builds up state of while
// another member processes it.
//
// # How an area changes hands
//
//  1. The plan (who has which bucket) changes because members came or went. What the
//     holder of a bucket does not process yet and somebody else does, it is assigned to rebuild.
//  2. When it has almost caught up, the member joins again and says that it is ready. In that
//     generation the area is taken from whoever has it. That member gives it up before the
//     generation has begun for it, and joins again because it did.
//  3. In the generation after that nobody says that he processes the area, so it is free,
//     and what is free is given to the holder of its bucket at once. So is the area of a member
//     that is gone.
//
// A unit is free only when no member of the generation says that he has it. So it is never
// with two, whatever generations anybody has missed.
//
// # What is remembered
//
// Members carry the plan from generation to generation: with how many buckets the group
// began, what it has seen of its topics, and the holders of the buckets. It does not matter who
// leads, nor who missed a generation: the latest plan counts, of those that members process by
// if there are any. Members that come have the buckets of members that are gone first, and
// those of whose states they have on disk before others; only then is a bucket split or merged
// (keyfilter.Assignment).
//
// What a member processes in other units than the plan's cannot be told. It gives up
// everything, and until it has, nobody is given anything.
package assignor
