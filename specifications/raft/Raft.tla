-------------------------------- MODULE Raft --------------------------------
(* One Raft group as cluster/raft plays it: elections, replication, what must *)
(* be on disk before it is said, snapshots, and a membership that counts from *)
(* the moment it is applied.                                                  *)
(*                                                                            *)
(* Time is not in here. A timeout, a lost message, a hung disk and a crash    *)
(* may come at any moment, so whatever holds here holds for every timing.     *)
(* Pre-votes, leases of leaders and transfers make elections rarer, never     *)
(* safer; they appear only as far as they say when a node may stand.          *)
(*                                                                            *)
(* How to read it: a node's memory is `node[n]`, and its part `disk` is what  *)
(* a crash leaves. A message is a claim. A node may make a claim whenever it  *)
(* is true of its memory (`Holds`), but a promise, a vote or an acceptance    *)
(* that others will count, leaves only with the end of a write that began     *)
(* after it was given. The network keeps, repeats, loses and reorders.        *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANT Node \* Ids of all that are or may become members: numbers above 0.

VARIABLES
    settings, \* What never changes: `configurations`, a sequence of [voters, outgoing, learners] that entries name by
              \* number, the first of them in force at first; and `prevote`: nobody raises the term before a quorum
              \* would vote for it.
    node,    \* For each node, its memory and its disk.
    net,     \* Messages that may still arrive.
    (* The rest is known to nobody. It is there to say what must hold. *)
    decided, \* All entries that any leader has committed, in order.
    sealed,  \* <<term, length>>: so long was `decided` when the leader of a term last committed.
    reigns,  \* <<term, node>>: who has led when.
    told     \* <<voter, term, candidate>>: votes that have left a node.

vars == <<settings, node, net, decided, sealed, reigns, told>>

Nobody == 0

(* An entry is <<term, value, configuration>>; the last is 0 for all but membership changes. *)
TermOf(entry) == entry[1]
ConfOf(entry) == entry[3]

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b

TermAt(log, index) == IF index = 0 \/ index > Len(log) THEN 0 ELSE TermOf(log[index])
LastTerm(log) == TermAt(log, Len(log))

(* The configuration in force once `index` is applied. The first entry of every log has one. *)
ConfAt(log, index) ==
    LET changes == {i \in 1..index : ConfOf(log[i]) # 0}
    IN ConfOf(log[CHOOSE i \in changes : \A j \in changes : j <= i])

HasChange(log, first, last) == \E i \in first..last : ConfOf(log[i]) # 0

Majority(of, voters) == Cardinality(of \cap voters) * 2 > Cardinality(voters)

(* In a joint configuration both halves have to agree (section 6). *)
Quorum(of, conf) ==
    /\ Majority(of, settings.configurations[conf].voters)
    /\ settings.configurations[conf].outgoing # {} => Majority(of, settings.configurations[conf].outgoing)

IsVoter(n, conf) == n \in settings.configurations[conf].voters \cup settings.configurations[conf].outgoing

(* From one configuration straight to another: majorities of both always meet. *)
SafeChange(old, new) ==
    LET before == settings.configurations[old]
        after == settings.configurations[new]
    IN /\ after.voters # {}
       /\ \/ before.outgoing = {} /\ after.outgoing = {}
             /\ Cardinality((before.voters \ after.voters) \cup (after.voters \ before.voters)) <= 1
          \/ before.outgoing = {} /\ after.outgoing = before.voters
          \/ before.outgoing # {} /\ after.outgoing = {} /\ after.voters = before.voters

(* Section 5.4.1: whether a log that ends so has all that this one has. *)
UpToDate(last, lastTerm, log) ==
    \/ lastTerm > LastTerm(log)
    \/ lastTerm = LastTerm(log) /\ last >= Len(log)

-----------------------------------------------------------------------------
(* The beginning: everybody has the same first entry, which names the members. *)

FirstLog == << <<1, 0, 1>> >>

FirstNode == [
    role |-> "follower", term |-> 1, vote |-> Nobody, log |-> FirstLog, commit |-> 1, applied |-> 1, conf |-> 1,
    agreed |-> 0,           \* So far the log is known to be that of the leader of this term.
    granted |-> {},         \* Who has answered this (pre-)candidate with a (pre-)vote.
    match |-> [k \in Node |-> 0],  \* What this leader knows to be on the disks of others.
    promised |-> {},        \* Promises that no write covers yet.
    writing |-> <<>>,       \* The write under way: <<what it makes of the disk, the promises it covers>>.
    disk |-> [term |-> 1, vote |-> Nobody, log |-> FirstLog, commit |-> 1]]

Init ==
    /\ node = [n \in Node |-> FirstNode]
    /\ net = {}
    /\ decided = FirstLog
    /\ sealed = {<<1, 1>>}
    /\ reigns = {}
    /\ told = {}

-----------------------------------------------------------------------------
(* What is said. *)

Promises == {"grant", "accept"}

(* Whether a message is true of what its sender has in memory. *)
Holds(n, m) ==
    LET s == node[n]
        leads == s.role = "leader" /\ m.term = s.term
    IN CASE m.type = "prevote" ->
               s.role = "precandidate" /\ m.term = s.term + 1 /\ m.last = Len(s.log) /\ m.lastTerm = LastTerm(s.log)
         [] m.type = "vote" ->
               s.role = "candidate" /\ m.term = s.term /\ m.last = Len(s.log) /\ m.lastTerm = LastTerm(s.log)
         [] m.type = "append" ->
               /\ leads
               /\ m.commit <= s.commit
               /\ m.prev + Len(m.entries) <= Len(s.log)
               /\ m.prevTerm = TermAt(s.log, m.prev)
               /\ m.entries = SubSeq(s.log, m.prev + 1, m.prev + Len(m.entries))
         [] m.type = "snapshot" ->
               leads /\ m.index <= s.commit /\ m.indexTerm = TermAt(s.log, m.index) /\ m.conf = ConfAt(s.log, m.index)
         (* A heartbeat commits without looking, so it must not reach beyond what its receiver is known to have. *)
         [] m.type = "beat" -> leads /\ m.commit <= Min(s.commit, s.match[m.to])
         [] m.type = "hurry" -> leads
         (* A vote refused, with what the refusing node knows to be committed. *)
         [] m.type = "refuse" -> m.term <= s.term /\ m.commit <= s.commit /\ m.commitTerm = TermAt(s.log, m.commit)
         [] m.type = "grant" -> m.term = s.term /\ s.vote = m.to
         [] m.type = "accept" -> m.term = s.term /\ m.index <= Max(s.agreed, s.commit)
         (* A pre-vote speaks of a term that its sender has not entered: it binds nobody. *)
         [] m.type = "pregrant" -> TRUE
         [] OTHER -> m.term <= s.term

(* Whether a promise could be kept after a crash at this moment: it is on disk, or of a term that is over there. *)
IsDurable(n, m) ==
    LET disk == node[n].disk
    IN \/ m.type \notin Promises
       \/ m.type = "grant" /\ (disk.term > m.term \/ (disk.term = m.term /\ disk.vote = m.to))
       \/ m.type = "accept" /\ m.index <= Len(disk.log)
          /\ SubSeq(disk.log, 1, m.index) = SubSeq(node[n].log, 1, m.index)

VotesIn(messages) == {<<m.from, m.term, m.to>> : m \in {each \in messages : each.type = "grant"}}

(* What needs no disk leaves at once; some of it may be lost at once. *)
Say(n, messages, lost) ==
    /\ \A m \in messages : m.from = n /\ Holds(n, m) /\ IsDurable(n, m)
    /\ net' = net \cup (messages \ lost)
    /\ told' = told \cup VotesIn(messages)
    /\ UNCHANGED <<node, decided, sealed, reigns>>

Promise(n, m) ==
    /\ m.from = n /\ m.type \in Promises /\ Holds(n, m)
    /\ node' = [node EXCEPT ![n].promised = @ \cup {m}]
    /\ UNCHANGED <<net, decided, sealed, reigns, told>>

(* A node's own voice counts like any other's: when it is on disk. *)
ToItself(n, kind, term, index) ==
    IF kind = "grant" THEN [type |-> "grant", from |-> n, to |-> n, term |-> term]
    ELSE [type |-> "accept", from |-> n, to |-> n, term |-> term, index |-> index]

-----------------------------------------------------------------------------
(* Disks and crashes. *)

(* A write of all that there is begins. *)
Write(n) ==
    LET s == node[n]
    IN /\ s.writing = <<>>
       /\ node' = [node EXCEPT
              ![n].writing = <<[term |-> s.term, vote |-> s.vote, log |-> s.log, commit |-> s.commit], s.promised>>,
              ![n].promised = {}]
       /\ UNCHANGED <<net, decided, sealed, reigns, told>>

(* It is synced, and its promises leave. *)
Written(n, lost) ==
    LET s == node[n]
    IN /\ s.writing # <<>>
       /\ node' = [node EXCEPT ![n].disk = s.writing[1], ![n].writing = <<>>]
       /\ net' = net \cup (s.writing[2] \ lost)
       /\ told' = told \cup VotesIn(s.writing[2])
       /\ UNCHANGED <<decided, sealed, reigns>>

(* A process ends and begins again with its disk. The write under way is on it (`landed`) or not. *)
(* What is applied is what its last snapshot holds; the commit index on disk is a hint.          *)
Restart(n, applied, commit, landed) ==
    LET s == node[n]
        disk == IF landed THEN s.writing[1] ELSE s.disk
    IN /\ landed => s.writing # <<>>
       /\ 1 <= applied /\ applied <= commit /\ commit <= disk.commit
       /\ node' = [node EXCEPT ![n] = [FirstNode EXCEPT
              !.term = disk.term, !.vote = disk.vote, !.log = disk.log, !.commit = commit, !.applied = applied,
              !.conf = ConfAt(disk.log, applied), !.disk = disk]]
       /\ UNCHANGED <<net, decided, sealed, reigns, told>>

-----------------------------------------------------------------------------
(* Terms and elections. *)

Arrives(n, m, again) ==
    /\ m \in net /\ m.to = n
    /\ net' = IF again THEN net ELSE net \ {m}

Followed(s, term) == [s EXCEPT
    !.role = "follower", !.term = term, !.vote = Nobody, !.agreed = 0, !.granted = {}, !.match = [k \in Node |-> 0]]

(* Section 5.1: whoever hears of a higher term enters it. Pre-votes speak of terms that nobody has entered. *)
Hear(n, m) ==
    /\ Arrives(n, m, TRUE)
    /\ m.type \notin {"prevote", "pregrant"} /\ m.term > node[n].term
    /\ node' = [node EXCEPT ![n] = Followed(@, m.term)]
    /\ UNCHANGED <<decided, sealed, reigns, told>>

(* A leader that finds no quorum or was removed, a candidate that was refused. *)
StepDown(n) ==
    /\ node[n].role # "follower"
    /\ node' = [node EXCEPT ![n].role = "follower", ![n].granted = {}, ![n].match = [k \in Node |-> 0]]
    /\ UNCHANGED <<net, decided, sealed, reigns, told>>

AskBefore(n) ==
    /\ node[n].role # "leader" /\ IsVoter(n, node[n].conf)
    /\ node' = [node EXCEPT ![n].role = "precandidate", ![n].granted = {n}]
    /\ UNCHANGED <<net, decided, sealed, reigns, told>>

(* Nobody stands who is no voter, or who knows of a membership change that it has not applied: the voters of before *)
(* might elect it, while those of after already decide.                                                              *)
Stand(n, why) ==
    LET s == node[n]
    IN /\ s.role # "leader" /\ IsVoter(n, s.conf)
       /\ ~HasChange(s.log, s.applied + 1, s.commit)
       /\ CASE why = "timeout" -> ~settings.prevote
            [] why = "prevotes" -> s.role = "precandidate" /\ Quorum(s.granted, s.conf)
            [] why = "asked" -> \E m \in net : m.type = "hurry" /\ m.to = n /\ m.term = s.term
       /\ node' = [node EXCEPT ![n] = [Followed(s, s.term + 1) EXCEPT
              !.role = "candidate", !.vote = n, !.promised = @ \cup {ToItself(n, "grant", s.term + 1, 0)}]]
       /\ UNCHANGED <<net, decided, sealed, reigns, told>>

(* One vote a term, for a log that has all that this one has. *)
Grant(n, m, again) ==
    LET s == node[n]
    IN /\ Arrives(n, m, again) /\ m.type = "vote" /\ m.term = s.term
       /\ s.vote \in {Nobody, m.from}
       /\ UpToDate(m.last, m.lastTerm, s.log)
       /\ node' = [node EXCEPT ![n].vote = m.from]
       /\ UNCHANGED <<decided, sealed, reigns, told>>

Count(n, m, again) ==
    LET s == node[n]
    IN /\ Arrives(n, m, again)
       /\ \/ m.type = "grant" /\ s.role = "candidate" /\ m.term = s.term
          \/ m.type = "pregrant" /\ s.role = "precandidate" /\ m.term = s.term + 1
       /\ node' = [node EXCEPT ![n].granted = @ \cup {m.from}]
       /\ UNCHANGED <<decided, sealed, reigns, told>>

(* A leader begins with an entry of its own term, for only such an entry can be committed by counting. *)
Lead(n) ==
    LET s == node[n]
        log == Append(s.log, <<s.term, 0, 0>>)
    IN /\ s.role = "candidate" /\ Quorum(s.granted, s.conf)
       /\ node' = [node EXCEPT ![n] = [s EXCEPT
              !.role = "leader", !.log = log, !.agreed = Len(log), !.match = [k \in Node |-> 0],
              !.promised = @ \cup {ToItself(n, "accept", s.term, Len(log))}]]
       /\ reigns' = reigns \cup {<<s.term, n>>}
       /\ UNCHANGED <<net, decided, sealed, told>>

(* A refusal tells what is committed; where that is in this log too, it is (Log Matching). *)
Learn(n, m, again) ==
    LET s == node[n]
    IN /\ Arrives(n, m, again) /\ m.type = "refuse" /\ s.role \in {"candidate", "precandidate"}
       /\ m.commit > s.commit /\ m.commitTerm = TermAt(s.log, m.commit)
       /\ node' = [node EXCEPT ![n].commit = m.commit]
       /\ UNCHANGED <<decided, sealed, reigns, told>>

-----------------------------------------------------------------------------
(* Replication. *)

(* One membership change at a time, and none before the last one is applied. *)
Propose(n, entries) ==
    LET s == node[n]
        log == s.log \o entries
        last == Len(s.log)
    IN /\ s.role = "leader"
       /\ \A i \in DOMAIN entries :
              /\ TermOf(entries[i]) = s.term
              /\ ConfOf(entries[i]) # 0 =>
                     /\ ~HasChange(log, s.applied + 1, last + i - 1)
                     /\ SafeChange(s.conf, ConfOf(entries[i]))
       /\ node' = [node EXCEPT ![n] = [s EXCEPT
              !.log = log, !.agreed = Len(log), !.promised = @ \cup {ToItself(n, "accept", s.term, Len(log))}]]
       /\ UNCHANGED <<net, decided, sealed, reigns, told>>

(* Whether all entries of a message are in the log where they belong. *)
HasAll(log, prev, entries) ==
    prev + Len(entries) <= Len(log) /\ SubSeq(log, prev + 1, prev + Len(entries)) = entries

(* The first entry of a message that the log lacks or has of another term. *)
FirstNew(log, prev, entries) ==
    CHOOSE i \in DOMAIN entries :
        /\ TermAt(log, prev + i) # TermOf(entries[i])
        /\ \A j \in 1..(i - 1) : TermAt(log, prev + j) = TermOf(entries[j])

(* Section 5.3. What conflicts is dropped with all behind it, and nothing else is. *)
TakeAppend(n, m, again) ==
    LET s == node[n]
        last == m.prev + Len(m.entries)
        log == IF HasAll(s.log, m.prev, m.entries) THEN s.log
               ELSE LET first == FirstNew(s.log, m.prev, m.entries)
                    IN SubSeq(s.log, 1, m.prev + first - 1) \o SubSeq(m.entries, first, Len(m.entries))
    IN /\ Arrives(n, m, again) /\ m.type = "append" /\ m.term = s.term /\ s.role # "leader"
       /\ m.prev >= s.commit
       /\ m.prevTerm = TermAt(s.log, m.prev) /\ m.prev <= Len(s.log)
       /\ node' = [node EXCEPT ![n] = [s EXCEPT
              !.role = "follower", !.granted = {}, !.log = log, !.agreed = Max(@, last),
              !.commit = Max(@, Min(m.commit, last))]]
       /\ UNCHANGED <<decided, sealed, reigns, told>>

(* Any other word of the leader of this term: it is followed, and its heartbeat commits. *)
TakeBeat(n, m, again) ==
    LET s == node[n]
    IN /\ Arrives(n, m, again) /\ m.type \in {"append", "beat", "snapshot"} /\ m.term = s.term /\ s.role # "leader"
       /\ node' = [node EXCEPT ![n] = [s EXCEPT
              !.role = "follower", !.granted = {}, !.commit = IF m.type = "beat" THEN Max(@, m.commit) ELSE @]]
       /\ UNCHANGED <<decided, sealed, reigns, told>>

(* Section 7. A snapshot of what is committed: the log is there and only that it is committed was not known, or the *)
(* snapshot takes its place. What it stands for is everything decided up to there.                                  *)
TakeSnapshot(n, m, again) ==
    LET s == node[n]
        known == TermAt(s.log, m.index) = m.indexTerm
    IN /\ Arrives(n, m, again) /\ m.type = "snapshot" /\ m.term = s.term /\ s.role # "leader"
       /\ m.index > s.commit
       /\ node' = [node EXCEPT ![n] =
              IF known THEN [s EXCEPT !.role = "follower", !.granted = {}, !.commit = m.index]
              ELSE [s EXCEPT
                  !.role = "follower", !.granted = {}, !.log = SubSeq(decided, 1, m.index), !.commit = m.index,
                  !.applied = m.index, !.conf = m.conf, !.agreed = m.index]]
       /\ UNCHANGED <<decided, sealed, reigns, told>>

TakeAccept(n, m, again) ==
    LET s == node[n]
    IN /\ Arrives(n, m, again) /\ m.type = "accept" /\ s.role = "leader" /\ m.term = s.term
       /\ node' = [node EXCEPT ![n].match[m.from] = Max(@, m.index)]
       /\ UNCHANGED <<decided, sealed, reigns, told>>

(* Sections 5.3 and 5.4.2: on the disks of a quorum, and of the leader's own term. *)
Commit(n, index) ==
    LET s == node[n]
    IN /\ s.role = "leader" /\ index > s.commit /\ index <= Len(s.log)
       /\ TermAt(s.log, index) = s.term
       /\ Quorum({k \in Node : s.match[k] >= index}, s.conf)
       /\ node' = [node EXCEPT ![n].commit = index]
       /\ decided' = IF index > Len(decided) THEN decided \o SubSeq(s.log, Len(decided) + 1, index) ELSE decided
       /\ sealed' = {seal \in sealed : seal[1] # s.term} \cup {<<s.term, Max(index, Len(decided))>>}
       /\ UNCHANGED <<net, reigns, told>>

Apply(n, index) ==
    LET s == node[n]
    IN /\ index > s.applied /\ index <= s.commit
       /\ node' = [node EXCEPT ![n].applied = index, ![n].conf = ConfAt(s.log, index)]
       /\ UNCHANGED <<net, decided, sealed, reigns, told>>

-----------------------------------------------------------------------------
(* What must hold at every moment (figure 3 of the paper). *)

ElectionSafety == Cardinality({r[1] : r \in reigns}) = Cardinality(reigns)

OneVotePerTerm == Cardinality({<<v[1], v[2]>> : v \in told}) = Cardinality(told)

LogsMatch(one, other) ==
    LET both == Min(Len(one), Len(other))
    IN \/ SubSeq(one, 1, both) = SubSeq(other, 1, both)
       \/ \A i \in 1..both :
              TermOf(one[i]) = TermOf(other[i]) =>
                  one[i] = other[i] /\ (i > 1 => TermOf(one[i - 1]) = TermOf(other[i - 1]))

LogMatching == \A n \in Node : \A k \in Node : n < k => LogsMatch(node[n].log, node[k].log)

LeaderCompleteness ==
    \A n \in Node :
        node[n].role = "leader" =>
            \A seal \in sealed :
                seal[1] < node[n].term =>
                    seal[2] <= Len(node[n].log) /\ SubSeq(node[n].log, 1, seal[2]) = SubSeq(decided, 1, seal[2])

(* What anybody holds for committed, and so may apply, is what was decided. *)
StateMachineSafety ==
    \A n \in Node :
        LET s == node[n]
        IN /\ s.applied <= s.commit /\ s.commit <= Len(s.log) /\ s.commit <= Len(decided)
           /\ SubSeq(s.log, 1, s.commit) = SubSeq(decided, 1, s.commit)

DiskIsBehind == \A n \in Node : node[n].disk.term <= node[n].term
=============================================================================
