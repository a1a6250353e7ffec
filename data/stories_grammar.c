#include "data/stories_grammar.h"

/* clang-format off */
const StorySymbol stories_grammar[] = {
    {"story", 0, {{1, "<meeting><event>"}}},

    {"meeting", 0, {
        {3, "There was <hero:child>. One <time> {hero.she} went to <place>."},
        {2, "One <time> <hero:child> went to <place>."},
        {2, "Near <place> lived <hero:child>, who liked to go there."},
        {2, "It was a <sky:weather> <time>. ^<hero:child> took {hero.hers} {sky.thing} and went out."}}},
    {"event", 0, {
        {4, " ^{hero.she} had a <hue:color> <toy:toy>, but it {toy.lost}. {hero.name} <sad>. <help> <helped> <together>"},
        {3, " ^{hero.she} saw <pet:animal>. It {pet.trouble}. {hero.name} <kind> and {pet.cure}. The {pet.name} {pet.glad} <alone>"},
        {2, " With <meal:food> in a bag {hero.she} met <friend:child>, who had no food. <share> <fed> <together>"},
        {2, " By accident {hero.she} broke <thing:fragile>. {hero.name} <deed:deed>. {deed.result} <lesson>{deed.rule}."}}},

    /* who */
    {"child", "first|name|she|her|hers", {
        {3, "a girl named Lily|Lily|she|her|her"},      {3, "a boy named Ben|Ben|he|him|his"},
        {2, "a girl named Mia|Mia|she|her|her"},        {2, "a boy named Max|Max|he|him|his"},
        {2, "a girl named Anna|Anna|she|her|her"},      {2, "a boy named Sam|Sam|he|him|his"},
        {2, "a girl named Sue|Sue|she|her|her"},        {2, "a boy named Leo|Leo|he|him|his"},
        {1, "a girl named Ruby|Ruby|she|her|her"},      {1, "a boy named Jack|Jack|he|him|his"},
        {1, "a girl named Zoe|Zoe|she|her|her"},        {1, "a boy named Finn|Finn|he|him|his"},
        {1, "a girl named Kate|Kate|she|her|her"},      {1, "a boy named Tom|Tom|he|him|his"},
        {1, "a girl named Emma|Emma|she|her|her"},      {1, "a boy named Paul|Paul|he|him|his"}}},
    {"animal", "first|name|trouble|cure|glad", {
        {3, "a small bird|bird|had a hurt wing|tied a cloth around it|sang a sweet song."},
        {3, "a white kitten|kitten|sat high up in a tree|carried it down|purred."},
        {2, "a lost puppy|puppy|shook with cold|wrapped it in {hero.hers} coat|licked {hero.hers} hand."},
        {2, "an old turtle|turtle|lay on its back|turned it over|nodded and walked off."},
        {1, "a gray rabbit|rabbit|was very hungry|gave it a carrot|ate it all up."},
        {1, "a duck|duck|was caught in a net|cut the net open|flapped its wings."}}},

    /* where and when */
    {"place", 0, {{3, "the park"}, {2, "the farm"}, {2, "the lake"}, {2, "the meadow"}, {1, "the mill"}, {1, "the hill"}}},
    {"time", 0, {{4, "day"}, {3, "morning"}, {2, "afternoon"}, {1, "evening"}}},
    {"weather", "first|thing", {{3, "sunny|hat"}, {2, "cold|scarf"}, {2, "rainy|umbrella"}, {1, "foggy|lamp"}}},

    /* what, and what becomes of it */
    {"color", 0, {{3, "red"}, {3, "blue"}, {2, "gray"}, {1, "pink"}, {1, "gold"}}},
    {"toy", "first|name|lost|back", {
        {3, "ball|ball|rolled into a pond|with a stick"},
        {3, "kite|kite|flew into a tree|by climbing up"},
        {2, "boat|boat|sailed too far|by swimming"},
        {1, "plane|plane|flew on a roof|with a pole"},
        {1, "car|car|fell into a hole|with a rope"}}},
    {"food", "first|name", {{3, "two apples|apple"}, {2, "two buns|bun"}, {1, "two pears|pear"}, {1, "two cookies|cookie"}}},
    {"fragile", 0, {{2, "a cup"}, {2, "a window"}, {1, "a blue vase"}}},
    {"deed", "first|result|rule", {
        {3, "told the truth|The owner smiled and forgave {hero.her}.|the truth makes things better"},
        {2, "ran away|All night {hero.she} could not sleep.|running away does not help"},
        {1, "hid the pieces|The owner found them and was sad.|hiding a thing does not mend it"}}},

    /* how */
    {"sad", 0, {{3, "was sad"}, {2, "cried"}, {1, "felt bad"}}},
    {"kind", 0, {{3, "wanted to help"}, {2, "felt sorry for it"}, {1, "came closer"}}},
    {"help", 0, {
        {3, "Then <friend:child> got the {hue} {toy.name} back {toy.back}."},
        {2, "But <friend:child> came and got it back {toy.back}."}}},
    {"share", 0, {
        {3, "{hero.name} gave {friend.her} one {meal.name}."},
        {2, "So {hero.she} shared, and each of them ate one {meal.name}."}}},
    {"helped", 0, {
        {3, "\"Thank you, {friend.name}!\" said {hero.name}."},
        {2, "^{hero.she} gave {friend.her} a hug."}}},
    {"fed", 0, {
        {3, "\"Thank you, {hero.name}!\" said {friend.name}."},
        {2, "{friend.name} was not hungry any more."}}},
    {"together", 0, {
        {3, "They became good friends."},
        {2, "They played all <time>."},
        {1, "After that they went home."}}},
    {"alone", 0, {
        {3, "{hero.name} was happy."},
        {2, "Now they are friends."},
        {1, "At home {hero.she} told mom about the {pet.name}."}}},
    {"lesson", 0, {{2, "^{hero.she} learned that "}, {1, "Now {hero.name} knows that "}}},
    {0}};
/* clang-format on */
