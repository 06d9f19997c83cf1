// The launchers of three hosts join, agree on what they run, train, and report the first failure (runtime/launch).
// At most one fault happens, at any moment. README.md says what is modelled.
//
// MUTANT_... macros take one rule out of the protocol. The test requires that the model then fails.

#define HOSTS 3
#define NONE 255
#define SUCCESS 100
#define REFUSED 101
#define PATIENCE 2 // FirstFailure

mtype:fault = { NoFault, RankFails, LauncherDies, LinkIsCut, OtherPlan, OtherData };
mtype:kind = { Join, Contribution, Failure, Settled, Done, Hello, Refusal, Roster, Gathered, Report };

mtype:fault fault = NoFault;
byte culprit = NONE; // the host of the fault
bool hasHappened = false;

chan up[HOSTS] = [5] of { mtype:kind, byte, bool };   // from a launcher to the first one: kind, host, isEcho
chan down[HOSTS] = [6] of { mtype:kind, byte, bool }; // from the first launcher
bool isAlive[HOSTS], isConnected[HOSTS], isTraining[HOSTS], mayEcho[HOSTS], isReporter[HOSTS];
byte said[HOSTS]; // what a launcher ends with: the host that it blames, SUCCESS or REFUSED
bool areAllTrained = false;
bool isUnaware[HOSTS]; // the launcher has not noticed the fault beside it yet

// FirstFailure of each launcher.
byte first[HOSTS], polls[HOSTS];
bool isEcho[HOSTS];

#define isQuiet (empty(up[1]) && empty(up[2]) && empty(down[1]) && empty(down[2]) && \
                 !isUnaware[0] && !isUnaware[1] && !isUnaware[2])
#define isDecided(host) (first[host] != NONE && (!isEcho[host] || polls[host] >= PATIENCE))
#define isLost(host) (!isConnected[host] || !isAlive[host])

inline consider(at, whose, sign) {
  if
#ifdef MUTANT_LAST_FAILURE
  :: true -> first[at] = whose; isEcho[at] = sign
#else
  :: first[at] == NONE || (isEcho[at] && !sign && !isDecided(at)) -> first[at] = whose; isEcho[at] = sign
  :: else
#endif
  fi
}

// Messages and news of dead neighbours arrive within a poll interval, so polls count when nothing is under way.
#ifdef MUTANT_NO_PATIENCE
#define pollNow(host) first[host] != NONE && isEcho[host] && polls[host] < PATIENCE
#else
#define pollNow(host) first[host] != NONE && isEcho[host] && polls[host] < PATIENCE && isQuiet
#endif

// Sends to a launcher if the connection stands.
inline tell(to, what, which) {
  if
  :: !isLost(to) && isAlive[0] -> down[to]!what(which, false)
  :: else
  fi
}

proctype Server() provided (isAlive[0]) {
  bool isMember[HOSTS], isDone[HOSTS], hasSettled[HOSTS], isMissed[HOSTS], hasRoster, isDecisionSent, isOver, hasLeft;
  byte contributions, differs = NONE, from, about;
  bool echo;
  do
  :: isOver -> break
  :: else ->
     if
     :: atomic { up[1]?Join(about, echo) -> from = 1; goto join }
     :: atomic { up[2]?Join(about, echo) -> from = 2; goto join }
     :: atomic { up[1]?Contribution(about, echo) -> from = 1; goto contribution }
     :: atomic { up[2]?Contribution(about, echo) -> from = 2; goto contribution }
     :: atomic { up[1]?Failure(about, echo) -> consider(0, about, echo) }
     :: atomic { up[2]?Failure(about, echo) -> consider(0, about, echo) }
     :: atomic { up[1]?Settled(about, echo) -> hasSettled[1] = true }
     :: atomic { up[2]?Settled(about, echo) -> hasSettled[2] = true }
     :: atomic { up[1]?Done(about, echo) -> isDone[1] = true }
     :: atomic { up[2]?Done(about, echo) -> isDone[2] = true }
     // A lost launcher is a failure, unless it has completed.
     :: atomic { isLost(1) && empty(up[1]) && !isMissed[1] ->
          isMissed[1] = true; isUnaware[0] = false; if :: !isDone[1] -> consider(0, 1, false) :: else fi }
     :: atomic { isLost(2) && empty(up[2]) && !isMissed[2] ->
          isMissed[2] = true; isUnaware[0] = false; if :: !isDone[2] -> consider(0, 2, false) :: else fi }
     :: atomic { !hasRoster && isMember[1] && isMember[2] ->
          hasRoster = true; tell(1, Roster, 0); tell(2, Roster, 0);
          contributions++; if :: fault == OtherData && culprit == 0 -> differs = 0 :: else fi }
     :: atomic { isTraining[0] && mayEcho[0] -> mayEcho[0] = false; isTraining[0] = false; consider(0, 0, true) }
     :: atomic { isTraining[0] && fault == RankFails && culprit == 0 && hasHappened ->
          isTraining[0] = false; isUnaware[0] = false; consider(0, 0, false) }
     :: atomic { pollNow(0) -> polls[0]++ }
     :: atomic { isDecided(0) && !isDecisionSent ->
          isDecisionSent = true; isTraining[0] = false; tell(1, Failure, first[0]); tell(2, Failure, first[0]) }
     :: atomic { isDecisionSent && (hasSettled[1] || isDone[1] || isMissed[1] || !isMember[1]) &&
                 (hasSettled[2] || isDone[2] || isMissed[2] || !isMember[2]) ->
          said[0] = first[0]; isReporter[0] = true; isOver = true; isUnaware[0] = false;
#ifndef MUTANT_NO_REPORT
          tell(1, Report, first[0]); tell(2, Report, first[0])
#endif
        }
     :: atomic { isTraining[0] && areAllTrained && !hasLeft && !isDecisionSent ->
          hasLeft = true; isTraining[0] = false; tell(1, Done, 0); tell(2, Done, 0) }
     :: atomic { hasLeft && !isDecided(0) && (isDone[1] || isMissed[1]) && (isDone[2] || isMissed[2]) ->
          said[0] = SUCCESS; isOver = true; isUnaware[0] = false }
     fi;
     goto next;
join:
     atomic {
       if
#ifndef MUTANT_PLAN_NOT_COMPARED
       :: fault == OtherPlan && culprit == from ->
          down[from]!Refusal(0, false);
          isMissed[from] = true;
          consider(0, from, false)
       :: else ->
#else
       :: true ->
#endif
          isMember[from] = true;
          down[from]!Hello(0, false);
          if
          :: isDecisionSent -> down[from]!Failure(first[0], false)
          :: else
          fi
       fi
     };
     goto next;
contribution:
     atomic {
       contributions++;
       if
       :: fault == OtherData && culprit == from -> differs = from
       :: else
       fi
     };
next:
     atomic {
       if
       :: hasRoster && contributions == HOSTS ->
          contributions = 0;
          tell(1, Gathered, differs); tell(2, Gathered, differs);
          if
#ifndef MUTANT_DATA_NOT_COMPARED
          :: differs != NONE -> consider(0, differs, false)
#endif
          :: else -> isTraining[0] = true
          fi
       :: else
       fi
     }
  od
}

proctype Client(byte host) provided (isAlive[host]) {
  bool isMember, hasRoster, isServerMissed, isServerDone, hasSettled, hasLeft, isOver, echo;
  byte about;
  if
  :: atomic { !isLost(host) && isAlive[0] -> up[host]!Join(0, false) }
  :: else
  fi;
  do
  :: isOver -> break
  :: else ->
     if
     :: atomic { down[host]?Hello(about, echo) -> isMember = true }
     :: atomic { down[host]?Refusal(about, echo) -> said[host] = REFUSED; isOver = true; isUnaware[host] = false }
     :: atomic { down[host]?Roster(about, echo) ->
          hasRoster = true; if :: isAlive[0] && isConnected[host] -> up[host]!Contribution(0, false) :: else fi }
     :: atomic { down[host]?Gathered(about, echo) ->
          if
#ifndef MUTANT_DATA_NOT_COMPARED
          :: about != NONE -> consider(host, about, false)
#endif
          :: else -> isTraining[host] = true
          fi }
     :: atomic { down[host]?Failure(about, echo) -> consider(host, about, false) }
     :: atomic { down[host]?Done(about, echo) -> isServerDone = true }
     :: atomic { down[host]?Report(about, echo) -> said[host] = about; isOver = true; isUnaware[host] = false }
     :: atomic { (!isAlive[0] || !isConnected[host]) && empty(down[host]) && !isServerMissed && !isOver ->
          isServerMissed = true; isUnaware[host] = false;
          if
          :: !isServerDone -> consider(host, 0, false)
          :: else
          fi }
     :: atomic { isTraining[host] && mayEcho[host] ->
          mayEcho[host] = false; isTraining[host] = false; consider(host, host, true);
          if :: isAlive[0] && isConnected[host] -> up[host]!Failure(host, true) :: else fi }
     :: atomic { isTraining[host] && fault == RankFails && culprit == host && hasHappened ->
          isTraining[host] = false; isUnaware[host] = false; consider(host, host, false);
          if :: isAlive[0] && isConnected[host] -> up[host]!Failure(host, false) :: else fi }
     :: atomic { pollNow(host) -> polls[host]++ }
     :: atomic { isDecided(host) && !hasSettled ->
          hasSettled = true; isTraining[host] = false;
          if :: isAlive[0] && isConnected[host] && !isServerMissed -> up[host]!Settled(0, false) :: else fi }
#ifndef MUTANT_WAIT_FOR_THE_DEAD
     :: atomic { hasSettled && isServerMissed ->
          said[host] = first[host]; isOver = true; isUnaware[host] = false;
          isReporter[host] = !hasRoster || host == 1 }
#endif
     :: atomic { isTraining[host] && areAllTrained && !hasLeft && !hasSettled ->
          hasLeft = true; isTraining[host] = false;
          if :: isAlive[0] && isConnected[host] -> up[host]!Done(0, false) :: else fi }
     :: atomic { hasLeft && !isDecided(host) && (isServerDone || isServerMissed) -> said[host] = SUCCESS; isOver = true; isUnaware[host] = false }
     fi
  od
}

// Chooses the fault, and lets it happen at any moment.
active proctype World() {
  byte host;
  d_step {
    host = 0;
    do
    :: host < HOSTS -> isAlive[host] = true; isConnected[host] = true; said[host] = NONE; first[host] = NONE; host++
    :: else -> break
    od
  }
  atomic {
    if
    :: fault = NoFault
    :: fault = RankFails
    :: fault = LauncherDies
    :: fault = LinkIsCut
    :: fault = OtherPlan
    :: fault = OtherData
    fi;
    if
    :: fault == NoFault -> skip
    :: fault != NoFault && fault != LinkIsCut && fault != OtherPlan -> culprit = 0
    :: fault != NoFault -> culprit = 1
    :: fault != NoFault -> culprit = 2
    fi;
    run Server(); run Client(1); run Client(2)
  }
  if
  :: fault == NoFault || fault == OtherPlan || fault == OtherData -> hasHappened = true
  :: atomic { fault == RankFails && isTraining[culprit] -> hasHappened = true; isUnaware[culprit] = true;
       mayEcho[(culprit + 1) % HOSTS] = true; mayEcho[(culprit + 2) % HOSTS] = true }
  :: atomic { fault == LauncherDies -> hasHappened = true; isAlive[culprit] = false;
       isUnaware[0] = culprit != 0; isUnaware[1] = culprit == 0; isUnaware[2] = culprit == 0;
       mayEcho[(culprit + 1) % HOSTS] = true; mayEcho[(culprit + 2) % HOSTS] = true }
  :: atomic { fault == LinkIsCut -> hasHappened = true; isConnected[culprit] = false }
  fi;
  do
  :: atomic { !areAllTrained && isTraining[0] && isTraining[1] && isTraining[2] && fault != RankFails ->
       assert(fault != OtherPlan && fault != OtherData); // nobody trains with two plans or two data sets
       areAllTrained = true }
  :: timeout -> break
  od;
  skip; // Nothing moves any more: every living launcher has ended, and blames the host of the fault.
  d_step {
    host = 0;
    do
    :: host < HOSTS ->
       if
       :: isAlive[host] ->
          assert(said[host] != NONE);
          if
          :: fault == NoFault -> assert(said[host] == SUCCESS)
          :: fault == RankFails || fault == OtherData -> assert(said[host] == culprit)
          :: fault == OtherPlan -> assert(said[host] == culprit || (said[host] == REFUSED && host == culprit))
          :: fault == LauncherDies -> assert(said[host] == culprit || (said[host] == SUCCESS && areAllTrained))
          :: fault == LinkIsCut ->
             assert(said[host] == (host == culprit -> 0 : culprit) || (said[host] == SUCCESS && areAllTrained))
          fi
       :: else
       fi;
       host++
    :: else -> break
    od;
    assert(said[0] == SUCCESS || said[1] == SUCCESS || said[2] == SUCCESS ||
           isReporter[0] || isReporter[1] || isReporter[2])
  }
}
